"""A2. Bounds of a program's output: a reference value inside of them is rounding, one far outside is not."""

import torch
from models import MLP, normal
from scenario import TYPE_I, TYPE_II, Program, Taps, scenario


@scenario(
    "A2 interval",
    "sum, product, dot product and a small network against bare values in and out of their bounds",
    size=(64, 256),
    inside=TYPE_I,
    outside=TYPE_II,
    unplaced={"outside": "The reference is bare values: they say that something is wrong, not where."},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Taps]:
    x, y = normal(seed, size, dtype=dtype), normal(seed + 1, size, dtype=dtype)
    network = MLP(size, 1).to(dtype)

    def target() -> Taps:
        with torch.no_grad():
            return {
                "add": (x[0] + y[0]),
                "mul": (x[0] * y[0]),
                "dot": torch.dot(x, y),
                "loss": network(x).sum(),
            }

    # The same mathematics, in another order and another precision, rounded once to the target's format.
    exact = MLP(size, 1).double()
    exact.load_state_dict(network.state_dict())
    with torch.no_grad():
        wide_x, wide_y = x.double(), y.double()
        values = {
            "add": wide_x[0] + wide_y[0],
            "mul": wide_x[0] * wide_y[0],
            "dot": (wide_x * wide_y).sum(),
            "loss": exact(wide_x).sum(),
        }
    if variant == "outside":
        # Against the size of what is summed: the sum itself may be near zero, where 5% of it would be rounding.
        with torch.no_grad():
            terms = exact.fc_2.weight * torch.relu(exact.fc_1(wide_x))
        values["loss"] = values["loss"] + 0.05 * terms.abs().sum()
    return target, {name: v.to(dtype) for name, v in values.items()}
