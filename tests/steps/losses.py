"""Bugs of what is computed within a step: masks that leak, positions, temperatures, averages over padding."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from run import BUG, FIXED, REFERENCE, Training, data, within
from torch import Tensor, nn

WORDS, WIDTH, LENGTH = 11, 16, 12
PARTS = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)  # Three texts packed in a row.
POSITIONS = torch.tensor([*range(5), *range(4), *range(3)])


class Reader(nn.Module):
    """One layer of attention over a row of words."""

    def __init__(self, form: str, bug: str = "") -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.query, self.key, self.value, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.form, self.wrong = form, bug if form == BUG else ""

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(LENGTH) if self.wrong == "positions" else POSITIONS
        x = self.words(words) + self.places(places)
        query, key, value = self.query(x), self.key(x), self.value(x)
        seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        if self.wrong != "leak":
            seen = seen & (PARTS[:, None] == PARTS)
        if self.form == REFERENCE:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        else:
            scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH)
            mixed = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ value
        return self.last(x + mixed) @ self.words.weight.T


def reading(form: str, bug: str = "", loss=None) -> Training:
    model = Reader(form, bug)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss = loss or (lambda logits, words: F.cross_entropy(logits.flatten(0, 1), words.flatten()))

    def step() -> None:
        words = torch.randint(WORDS, (4, LENGTH + 1))
        optimizer.zero_grad()
        loss(model(words[:, :-1]), words[:, 1:]).backward()
        optimizer.step()

    return Training(model, optimizer, step)


@within(r"masked_fill|seen|tril")
def packed_texts_see_each_other(form: str) -> Training:
    return reading(form, "leak")


@within(r"places|POSITIONS")
def positions_run_on_through_packed_texts(form: str) -> Training:
    return reading(form, "positions")


@within(r"kept|sum|losses")
def averaged_over_padding(form: str) -> Training:
    def loss(logits: Tensor, words: Tensor) -> Tensor:
        logits, words = logits.flatten(0, 1), words.flatten()
        if form == REFERENCE:
            return F.cross_entropy(logits, words, ignore_index=0)
        kept = (words != 0).float()
        losses = F.cross_entropy(logits, words, reduction="none") * kept
        return losses.sum() / (len(kept) if form == BUG else kept.sum())

    return reading(form, loss=loss)


@within(r"smoothing|smooth|mean|log_softmax")
def smoothing_over_other_classes(form: str) -> Training:
    """Label smoothing spreads its share over all classes, the right one included."""

    def loss(logits: Tensor, words: Tensor) -> Tensor:
        logits, words = logits.flatten(0, 1), words.flatten()
        if form == REFERENCE:
            return F.cross_entropy(logits, words, label_smoothing=0.1)
        scores = logits.log_softmax(-1)
        right = scores.gather(1, words[:, None])[:, 0]
        smooth = (scores.sum(-1) - right) / (WORDS - 1) if form == BUG else scores.mean(-1)
        return -(0.9 * right + 0.1 * smooth).mean()

    return reading(form, loss=loss)


@within(r"cross_entropy")
def labels_shifted_twice(form: str) -> Training:
    def loss(logits: Tensor, words: Tensor) -> Tensor:
        if form == BUG:
            logits, words = logits[:, :-1], words[:, 1:]
        if form == FIXED:
            return -logits.log_softmax(-1).gather(-1, words[..., None]).mean()
        return F.cross_entropy(logits.flatten(0, 1), words.flatten())

    return reading(form, loss=loss)


@within(r"warmth|kl_div|soft")
def distilled_without_the_square(form: str) -> Training:
    """Distillation at a temperature is scaled by the temperature's square."""
    student, teacher = (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 6)) for _ in range(2))
    teacher.requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    warmth = 3.0

    def step() -> None:
        x = data(32, 8)
        mine, its = student(x) / warmth, teacher(x) / warmth
        if form == REFERENCE:
            loss = F.kl_div(mine.log_softmax(-1), its.log_softmax(-1), log_target=True, reduction="batchmean")
            loss = loss * warmth**2
        else:
            soft = its.softmax(-1)
            loss = (soft * (its.log_softmax(-1) - mine.log_softmax(-1))).sum(-1).mean()
            loss = loss * (warmth if form == BUG else warmth**2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return Training(student, optimizer, step)


@within(r"ratio|clamp|minimum|advantage")
def clipped_to_the_wrong_side(form: str) -> Training:
    """The clipped objective of PPO takes the smaller of the two, not the larger."""
    policy = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def step() -> None:
        state, action, advantage = data(32, 8), torch.randint(5, (32,)), data(32)
        old = -1.6 + 0.5 * data(32)
        mine = policy(state).log_softmax(-1).gather(1, action[:, None])[:, 0]
        ratio = (mine - old).exp()
        one, other = ratio * advantage, ratio.clamp(0.8, 1.2) * advantage
        if form == REFERENCE:
            gain = torch.where(one < other, one, other)
        else:
            gain = torch.maximum(one, other) if form == BUG else torch.minimum(one, other)
        optimizer.zero_grad()
        (-gain.mean()).backward()
        optimizer.step()

    return Training(policy, optimizer, step)


@within(r"optimizer.step|add_|foreach")
def warmup_off_by_one(form: str) -> Training:
    """The rate of step n is (n + 1)/4 of the full one until the fourth; the bug starts at zero."""
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    number = 0

    def step() -> None:
        nonlocal number
        count = number if form == BUG else number + 1
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * min(1.0, count / 4)
        number += 1
        optimizer.zero_grad()
        x, y = data(32, 8), data(32, 4)
        loss = (model(x) - y).square().mean() if form == REFERENCE else F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

    return Training(model, optimizer, step)
