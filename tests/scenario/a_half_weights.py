"""A6. Weights that are held in 16 bits without a master copy in fp32: a step below half of a weight's last place (in
fp16, of a weight 2048 times larger) leaves it as it was. With a master copy nothing is lost; a master copy that
is never copied back trains nothing."""

import copy
from typing import Any

import torch
from models import MLP, hazards, normal
from scenario import TYPE_I, TYPE_II, Program, scenario

RATE = 1e-4


def says(variant: str, verdict: Any) -> None:
    lost = hazards(verdict).get("lost_updates")
    if variant in ("fp16", "bf16"):
        assert lost is not None and lost.share > 0.5 and lost.place.format == variant, verdict.explain()
        assert "master copy" in lost.remedy
    else:
        assert lost is None, verdict.explain()


@scenario(
    "A6 half weights",
    "updates that vanish in 16-bit weights",
    size=(8, 24),
    says=says,
    fp16=TYPE_I,
    bf16=TYPE_I,
    master=TYPE_I,
    never_copied_back=TYPE_II,
    cause={"fp16": "PRECISION_POLICY", "bf16": "PRECISION_POLICY", "master": "PRECISION_POLICY"},
    suspect={"never_copied_back": r"copy_|SGD.*step"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    plain = MLP(16).to(dtype)
    kind = torch.bfloat16 if variant == "bf16" else torch.float16
    narrow = copy.deepcopy(plain).to(kind if dtype == torch.float32 else dtype)
    masters = {name: p.detach().clone() for name, p in plain.named_parameters()}
    x, y = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, 8, dtype=dtype)

    def loss_of(model: MLP) -> torch.Tensor:
        return (model(x.to(model.fc_1.weight.dtype)).to(dtype) - y).square().mean()

    def target() -> dict[str, torch.Tensor]:
        loss = loss_of(narrow)
        loss.backward()
        with torch.no_grad():
            for name, p in narrow.named_parameters():
                if variant in ("fp16", "bf16"):
                    p.add_(p.grad, alpha=-RATE)
                else:
                    masters[name].add_(p.grad.to(dtype), alpha=-RATE)
                    if variant == "master":
                        p.copy_(masters[name])
        return {"loss": loss.detach(), **{f"weight:{n}": p.detach().to(dtype) for n, p in narrow.named_parameters()}}

    def reference() -> dict[str, torch.Tensor]:
        loss = loss_of(plain)
        loss.backward()
        torch.optim.SGD(plain.parameters(), lr=RATE).step()
        return {"loss": loss.detach(), **{f"weight:{n}": p.detach() for n, p in plain.named_parameters()}}

    return target, reference
