"""Reinforcement learning: policies, values, and what they are compared with."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Normal

from .generative import mlp
from .language import Decoder, text
from .training import Cast, Training, program, trained


@program(bf16=False)
def policy_gradient(cast: Cast) -> Training:
    policy = mlp(6, 16, 3)

    def loss() -> torch.Tensor:
        choice = Categorical(logits=policy(torch.randn(16, 6)))
        action, reward = choice.sample(), torch.randn(16)
        gain = (reward - reward.mean()) / (reward.std() + 1e-8)
        return -(choice.log_prob(action) * gain).mean() - 0.01 * choice.entropy().mean()

    return trained(policy, torch.optim.Adam(policy.parameters(), 1e-3), loss, cast)


@program(bf16=False)
def clipped_policy(cast: Cast) -> Training:
    """PPO: several epochs over what an older policy did."""
    actor, critic = mlp(6, 16, 3), mlp(6, 16, 1)
    model = nn.ModuleList([actor, critic])
    optimizer = torch.optim.Adam(model.parameters(), 3e-4, eps=1e-5)

    def step() -> None:
        seen, reward = torch.randn(16, 6), torch.randn(16)
        with torch.no_grad():
            old = Categorical(logits=actor(seen))
            action = old.sample()
            before, value = old.log_prob(action), critic(seen).squeeze(1)
            gain = torch.zeros(16)
            last = torch.zeros(())
            for t in reversed(range(15)):
                last = reward[t] + 0.99 * value[t + 1] - value[t] + 0.95 * 0.99 * last
                gain[t] = last
            goal = gain + value
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        for _ in range(2):
            new = Categorical(logits=actor(seen))
            ratio = (new.log_prob(action) - before).exp()
            clipped = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = -clipped + 0.5 * F.mse_loss(critic(seen).squeeze(1), goal) - 0.01 * new.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()

    return Training([model], [optimizer], step)


@program(bf16=False)
def value_of_actions(cast: Cast) -> Training:
    """DQN with a target network that follows slowly."""
    network = mlp(6, 16, 3)
    target = copy.deepcopy(network).requires_grad_(False)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, amsgrad=True)

    def loss() -> torch.Tensor:
        seen, then, action, reward = (
            torch.randn(16, 6),
            torch.randn(16, 6),
            torch.randint(0, 3, (16, 1)),
            torch.randn(16),
        )
        with torch.no_grad():
            best = network(then).argmax(1, keepdim=True)
            goal = reward + 0.99 * target(then).gather(1, best).squeeze(1)
        return F.smooth_l1_loss(network(seen).gather(1, action).squeeze(1), goal)

    def follow() -> None:
        with torch.no_grad():
            for old, new in zip(target.parameters(), network.parameters(), strict=True):
                old.lerp_(new, 0.005)

    made = trained(network, optimizer, loss, cast, follow)
    made.models.append(target)
    return made


@program(bf16=False)
def soft_actor_critic(cast: Cast) -> Training:
    actor, critic = mlp(6, 16, 4), mlp(8, 16, 1)
    temperature = nn.ParameterDict({"log": nn.Parameter(torch.zeros(()))})
    optimizers = [torch.optim.Adam(m.parameters(), 3e-4) for m in (actor, critic, temperature)]

    def acted(seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_deviation = actor(seen).chunk(2, 1)
        normal = Normal(mean, log_deviation.clamp(-5, 2).exp())
        raw = normal.rsample()
        action = raw.tanh()
        return action, (normal.log_prob(raw) - torch.log(1 - action.square() + 1e-6)).sum(1)

    def apply(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def step() -> None:
        seen, then, reward = torch.randn(16, 6), torch.randn(16, 6), torch.randn(16)
        with torch.no_grad():
            action, chance = acted(then)
            goal = reward + 0.99 * (critic(torch.cat([then, action], 1)).squeeze(1) - temperature["log"].exp() * chance)
        apply(F.mse_loss(critic(torch.cat([seen, torch.rand(16, 2)], 1)).squeeze(1), goal), optimizers[1])
        action, chance = acted(seen)
        apply(
            (temperature["log"].exp().detach() * chance - critic(torch.cat([seen, action], 1)).squeeze(1)).mean(),
            optimizers[0],
        )
        apply(-(temperature["log"] * (chance.detach() - 2)).mean(), optimizers[2])

    return Training([actor, critic, temperature], optimizers, step)


@program()
def group_relative_policy(cast: Cast) -> Training:
    """GRPO: rewards are compared within a group of answers."""
    model = Decoder(1)
    frozen = copy.deepcopy(model).requires_grad_(False)

    def chances(scorer: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        return scorer(tokens[:, :-1]).float().log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)

    def loss() -> torch.Tensor:
        tokens, reward = text(4), torch.randn(4)
        gain = ((reward - reward.mean()) / (reward.std() + 1e-4))[:, None]
        own = chances(model, tokens)
        with torch.no_grad():
            base = chances(frozen, tokens)
        ratio = (own - own.detach()).exp()
        apart = (base - own).exp() - (base - own) - 1
        return -(torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain) - 0.04 * apart).mean()

    made = trained(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, cast)
    made.models.append(frozen)
    return made
