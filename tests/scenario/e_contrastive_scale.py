"""A contrastive loss over normalised vectors with a learned temperature. A temperature that is read with .item() has
the same value and no gradient."""

import torch
import torch.nn.functional as F
from models import normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor, nn


class Scaled(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.embed = nn.Linear(12, 8, dtype=dtype)
        self.scale = nn.Parameter(torch.tensor(2.6593, dtype=dtype))


@scenario(
    "contrastive scale",
    "a learned temperature that gets no gradient",
    size=(6, 24),
    by_hand=TYPE_I,
    item=TYPE_II,
    cause={"item": "STRUCTURE"},
    suspect={"item": r"scale"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    one, other = Scaled(dtype), Scaled(dtype)
    other.load_state_dict(one.state_dict())
    a, b = normal(seed, size, 12, dtype=dtype), normal(seed + 1, size, 12, dtype=dtype)

    def taps(model: Scaled, loss: Tensor) -> dict[str, Tensor]:
        loss.backward()
        grads = {f"grad:{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {"loss": loss.detach(), **grads}

    def target() -> dict[str, Tensor]:
        u, v = (one.embed(t) for t in (a, b))
        u, v = (t / t.norm(dim=-1, keepdim=True) for t in (u, v))
        factor = one.scale.exp()
        logits = (factor.item() if variant == "item" else factor) * (u @ v.T)
        own = logits.diagonal()
        return taps(one, ((logits.logsumexp(1) - own).mean() + (logits.logsumexp(0) - own).mean()) / 2)

    def reference() -> dict[str, Tensor]:
        u, v = (F.normalize(other.embed(t), dim=-1) for t in (a, b))
        logits = u @ v.T * other.scale.exp()
        own = torch.arange(size)
        return taps(other, (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2)

    return target, reference
