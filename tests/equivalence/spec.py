"""A program as data: its sizes, its blocks and the edits made to it. Everything follows from it and a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from . import (  # noqa: F401  These register their forms.
    blocks,
    mutations_given,
    mutations_layers,
    mutations_training,
    rewrites_layers,
    rewrites_loading,
    rewrites_mixing,
    rewrites_training,
)
from .forms import INPUT, KINDS, LAYER, LOSS, MUTATIONS, OPTIMIZER, REWRITES, STEP, Edit

VOCABULARY = 7
LAYERS_MAX = 4


@dataclass(frozen=True)
class Block:
    kind: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Applied:
    """An edit at one block."""

    edit: str
    block: int
    delta: float = 0.0

    @property
    def registered(self) -> Edit:
        return REWRITES[self.edit] if self.edit in REWRITES else MUTATIONS[self.edit]


@dataclass(frozen=True)
class Spec:
    """Blocks are an input, layers, a loss, a step and an optimizer, in this order."""

    seed: int
    batch: int
    time: int
    width: int
    blocks: tuple[Block, ...]
    autocast: bool = False
    module: bool = True

    def edited(self, kept: list[int]) -> Spec:
        return replace(self, blocks=tuple(self.blocks[i] for i in kept))


@dataclass(frozen=True)
class Pair:
    """Two programs: one spec, and the edits of each side."""

    spec: Spec
    target: tuple[Applied, ...] = ()
    reference: tuple[Applied, ...] = ()

    @property
    def mutations(self) -> list[Applied]:
        return [a for a in (*self.target, *self.reference) if a.registered.mutates]

    @property
    def rewrites(self) -> list[Applied]:
        return [a for a in (*self.target, *self.reference) if not a.registered.mutates]


def kinds_of(slot: str) -> list[str]:
    return [name for name, kind in KINDS.items() if kind.slot == slot]


def draw_block(name: str, draw: random.Random) -> Block:
    return Block(name, {option: draw.choice(values) for option, values in KINDS[name].options.items()})


def applicable(spec: Spec, index: int, edit: Edit) -> bool:
    block = spec.blocks[index]
    kind = KINDS[block.kind]
    if edit.slot != kind.slot or edit.kind not in ("any", block.kind) or not edit.needs(block.options):
        return False
    if edit.name == "by_rows" and (kind.draws or kind.coupled):
        return False
    if edit.name in ("branch_detached", "layer_left_out") and index + 1 == len(spec.blocks) - 3:
        return False  # A loss without any gradient is an error, not a pair.
    return not (edit.whole and any(KINDS[b.kind].coupled or KINDS[b.kind].draws for b in spec.blocks))


def draw_spec(draw: random.Random, must: str | None = None) -> Spec:
    """A random program; `must` names an edit that it shall have room for."""
    chosen = {slot: draw.choice(kinds_of(slot)) for slot in (INPUT, LOSS, STEP, OPTIMIZER)}
    layers = [draw.choice(kinds_of(LAYER)) for _ in range(draw.randint(1, LAYERS_MAX))]
    if must is not None:
        edit = REWRITES[must] if must in REWRITES else MUTATIONS[must]
        if edit.kind != "any":
            if edit.slot == LAYER:
                layers[draw.randrange(len(layers))] = edit.kind
            else:
                chosen[edit.slot] = edit.kind
        if edit.whole:  # Such programs neither couple rows nor draw.
            fine = [n for n in kinds_of(LAYER) if not KINDS[n].draws and not KINDS[n].coupled]
            layers = [n if n in fine else draw.choice(fine) for n in layers]
            losses = [n for n in kinds_of(LOSS) if not KINDS[n].coupled and not KINDS[n].draws]
            chosen[LOSS] = chosen[LOSS] if chosen[LOSS] in losses else draw.choice(losses)
        if "STRUCTURE" in edit.causes:  # What follows must bear a parameter without a gradient.
            layers = [*layers, "linear"]
            chosen[STEP], chosen[OPTIMIZER] = "whole", "sgd"
    names = [chosen[INPUT], *layers, chosen[LOSS], chosen[STEP], chosen[OPTIMIZER]]
    if not KINDS[names[0]].params and not any(KINDS[n].params for n in layers):
        names.insert(1, "linear")
    batch = draw.choice((2, 4))
    return Spec(
        draw.randrange(2**31),
        batch,
        draw.choice((3, 4)),
        draw.choice((4, 6)),
        tuple(draw_block(n, draw) for n in names),
        autocast=draw.random() < 0.15,
        module=draw.random() < 0.7,
    )


def draw_delta(draw: random.Random) -> float:
    """From 1e-9 to 1, the same chance for each power of ten."""
    size = 10 ** draw.uniform(-9, 0)
    return float(f"{draw.choice((-1, 1)) * size:.4g}")


def draw_edits(spec: Spec, draw: random.Random, names: list[str], count: int) -> list[Applied]:
    """Edits of blocks of their own, drawn evenly over the edits that fit."""
    places = {}
    for name in names:
        edit = REWRITES[name] if name in REWRITES else MUTATIONS[name]
        fitting = [i for i in range(len(spec.blocks)) if applicable(spec, i, edit)]
        if fitting:
            places[name] = fitting
    out: list[Applied] = []
    while places and len(out) < count:
        name = draw.choice(sorted(places))
        free = [i for i in places.pop(name) if i not in {a.block for a in out}]
        if free:
            edit = REWRITES[name] if name in REWRITES else MUTATIONS[name]
            out.append(Applied(name, draw.choice(free), draw_delta(draw) if edit.scaled else 0.0))
    return out


def draw_pair(seed: int, must: str | None = None) -> Pair:
    """Half of all pairs are rewrites alone; the others have one mutation, and half of these a rewrite elsewhere."""
    draw = random.Random(f"equivalence {seed} {must}")
    registries = {True: MUTATIONS, False: REWRITES}
    mutates = draw.random() < 0.5 if must is None else must in MUTATIONS
    must = must or draw.choice(sorted(registries[mutates]))
    while True:
        spec = draw_spec(draw, must)
        first = draw_edits(spec, draw, [must], 1)
        if first:
            break
    structural = "STRUCTURE" in first[0].registered.causes
    count = 0 if structural else draw.choice((0, 0, 1)) if mutates else draw.choice((0, 1, 2))
    others = [a for a in draw_edits(spec, draw, sorted(REWRITES), count + 1) if a.block != first[0].block][:count]
    both = [*first, *others]
    sides: tuple[list[Applied], list[Applied]] = ([], [])
    for applied in both:
        sides[draw.random() < 0.3].append(applied)
    return Pair(spec, tuple(sides[0]), tuple(sides[1]))
