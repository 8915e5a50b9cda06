"""Makes a failing pair small: fewer edits, fewer layers, plainer parts, smaller sizes, while it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .forms import INPUT, KINDS, LAYER, LOSS, OPTIMIZER, STEP
from .spec import Applied, Block, Pair, Spec, applicable

PLAIN = {INPUT: "features", LOSS: "mse", STEP: "whole", OPTIMIZER: "sgd"}
SIZES = {"batch": 2, "time": 3, "width": 4}
ROUNDS_MAX = 20


def shrink(pair: Pair, fails: Callable[[Pair], bool]) -> Pair:
    """The smallest pair found that still fails. Candidates are tried in the order of how much they remove."""
    for _ in range(ROUNDS_MAX):
        for candidate in _smaller(pair):
            if _possible(candidate) and fails(candidate):
                pair = candidate
                break
        else:
            return pair
    return pair


def _smaller(pair: Pair) -> Iterator[Pair]:
    spec = pair.spec
    for side in ("target", "reference"):
        edits = getattr(pair, side)
        for i in range(len(edits)):
            yield replace(pair, **{side: edits[:i] + edits[i + 1 :]})
    edited = {a.block for a in (*pair.target, *pair.reference)}
    free = [i for i in range(len(spec.blocks)) if i not in edited]
    layers = [i for i in free if KINDS[spec.blocks[i].kind].slot == LAYER]
    if len(layers) > 1:
        yield _without(pair, set(layers))
    for i in layers:
        yield _without(pair, {i})
    for i in free:
        block = spec.blocks[i]
        plain = PLAIN.get(KINDS[block.kind].slot)
        if plain is not None and block.kind != plain:
            yield replace(pair, spec=_with_block(spec, i, plain))
    if spec.autocast:
        yield replace(pair, spec=replace(spec, autocast=False))
    if spec.module:
        yield replace(pair, spec=replace(spec, module=False))
    for name, size in SIZES.items():
        if getattr(spec, name) > size:
            yield replace(pair, spec=replace(spec, **{name: size}))
    for side in ("target", "reference"):
        edits = getattr(pair, side)
        for i, applied in enumerate(edits):
            rounder = float(f"{applied.delta:.0e}")
            if rounder != applied.delta:
                yield replace(pair, **{side: (*edits[:i], replace(applied, delta=rounder), *edits[i + 1 :])})


def _with_block(spec: Spec, index: int, kind: str) -> Spec:
    options = {name: values[0] for name, values in KINDS[kind].options.items()}
    blocks = (*spec.blocks[:index], Block(kind, options), *spec.blocks[index + 1 :])
    return replace(spec, blocks=blocks)


def _without(pair: Pair, dropped: set[int]) -> Pair:
    kept = [i for i in range(len(pair.spec.blocks)) if i not in dropped]

    def moved(edits: tuple[Applied, ...]) -> tuple[Applied, ...]:
        return tuple(replace(a, block=kept.index(a.block)) for a in edits)

    blocks = tuple(pair.spec.blocks[i] for i in kept)
    return Pair(replace(pair.spec, blocks=blocks), moved(pair.target), moved(pair.reference))


def _possible(pair: Pair) -> bool:
    spec = pair.spec
    if not (pair.target or pair.reference) or not any(KINDS[b.kind].params for b in spec.blocks):
        return False
    return all(applicable(spec, a.block, a.registered) for a in (*pair.target, *pair.reference))
