"""PPO's first minibatch: the policy is still the one that acted, so that each ratio is exactly 1, the KL exactly 0,
and clipped and plain objective tie. Old log-probabilities come from the same network, computed once before the step. A
mean of the entropy over the actions, where their sum belongs, is a bug."""

import copy

import torch
import torch.nn.functional as F
from models import MLP, gradients, normal
from scenario import TYPE_I, TYPE_II, Program, scenario
from torch import Tensor

ACTIONS, CLIP = 6, 0.2


@scenario(
    "PPO first minibatch",
    "ratios of exactly 1 and a KL of exactly 0",
    size=(8, 48),
    same=TYPE_I,
    entropy=TYPE_II,
    suspect={"entropy": r"entropy|mean"},
)
def programs(variant: str, size: int, seed: int, dtype: torch.dtype) -> tuple[Program, Program]:
    acted = MLP(16, ACTIONS).to(dtype)
    one, other = copy.deepcopy(acted), copy.deepcopy(acted)
    x, advantage = normal(seed, size, 16, dtype=dtype), normal(seed + 1, size, dtype=dtype)
    action = torch.randint(0, ACTIONS, (size,), generator=torch.Generator().manual_seed(seed + 2))
    with torch.no_grad():
        old = torch.log_softmax(acted(x), -1).gather(1, action[:, None])[:, 0]

    def taps(model: MLP, objective: Tensor, entropy: Tensor, kl: Tensor) -> dict[str, Tensor]:
        loss = objective - 0.01 * entropy
        loss.backward()
        return {"loss": loss.detach(), "kl": kl.detach(), **gradients(model)}

    def target() -> dict[str, Tensor]:
        logits = one(x)
        new = -F.cross_entropy(logits, action, reduction="none")
        ratio = (new - old).exp()
        worst = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP))
        p = torch.softmax(logits, -1)
        entropy = -(p * torch.log_softmax(logits, -1))
        entropy = entropy.mean() if variant == "entropy" else entropy.sum(-1).mean()
        return taps(one, worst.mean(), entropy, ((ratio - 1) - (new - old)).mean())

    def reference() -> dict[str, Tensor]:
        chance = torch.distributions.Categorical(logits=other(x), validate_args=False)
        ratio = torch.exp(chance.log_prob(action) - old)
        best = torch.min(ratio * advantage, torch.clamp(ratio, 1 - CLIP, 1 + CLIP) * advantage)
        return taps(other, -best.mean(), chance.entropy().mean(), (ratio - 1 - ratio.log()).mean())

    return target, reference
