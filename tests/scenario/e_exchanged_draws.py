"""Two random draws that changed their places in the program. With a generator each they are the same numbers; with one
generator each is still a draw of its own kind, which it is matched by. One draw used in both places is a bug."""

import torch
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

P = 0.25


@scenario(
    "exchanged draws",
    "two random draws that changed places",
    size=(8, 32),
    own_generators=TYPE_I,
    other_kind=TYPE_I,
    same_kind=TYPE_I,
    used_twice=TYPE_II,
    suspect={"used_twice": r"randn|noise"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    x, weight = normal(seed, 4, size, dtype=dtype), normal(seed + 1, size, size, dtype=dtype) / size**0.5
    own = variant == "own_generators"

    def first(generator: torch.Generator | None) -> Tensor:
        return torch.randn(4, size, generator=generator, dtype=dtype)

    def second(generator: torch.Generator | None) -> Tensor:
        if variant == "other_kind":
            return (torch.rand(4, size, generator=generator, dtype=dtype) >= P).to(dtype) / (1 - P)
        return 1 + 0.1 * torch.randn(4, size, generator=generator, dtype=dtype)

    def run(noise: Tensor, factor: Tensor) -> dict[str, Tensor]:
        out = torch.tanh((x + 0.1 * noise) @ weight) * factor
        return {"loss": out.square().mean(), "out": out}

    def generators() -> tuple[torch.Generator | None, torch.Generator | None]:
        return (torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)) if own else (None, None)

    def target() -> dict[str, Tensor]:
        one, other = generators()
        if variant == "used_twice":
            noise = first(one)
            second(other)
            return run(noise, 1 + 0.1 * noise)
        factor = second(other)
        return run(first(one), factor)

    def reference() -> dict[str, Tensor]:
        one, other = generators()
        noise = first(one)
        return run(noise, second(other))

    return target, reference
