"""The tables of what programs are made of: blocks, rewrites that keep a block's mathematics, mutations that change it.

A form is a function from a Block's context to lines of PyTorch. Its docstring is its reason. In layers `h` is the
hidden state (batch, time, width) that the lines replace; in losses they set `loss`; in steps and optimizers they are
the program's body. Forms of the kind "any" take the lines that stand there and change them or add to them. Lines
that begin with PREPARE run before the step, as when a model is loaded: what they leave in p, d and t is given to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

INPUT, LAYER, LOSS, STEP, OPTIMIZER = "input", "layer", "loss", "step", "optimizer"
SLOTS = (INPUT, LAYER, LOSS, STEP, OPTIMIZER)

PREPARE = "prepare: "


@dataclass(frozen=True)
class Context:
    """What a form may use: sizes, the block's options, names of its parameters and tables, and the mutation's size."""

    index: int
    batch: int
    time: int
    width: int
    options: dict[str, Any] = field(default_factory=dict)
    delta: float = 0.0
    lines: tuple[str, ...] = ()  # Of the block as it stands, for forms of the kind "any".

    def p(self, name: str) -> str:
        return f'p["{name}{self.index}"]'

    def t(self, name: str) -> str:
        return f't["{name}{self.index}"]'

    def d(self, name: str) -> str:
        return f'd["{name}{self.index}"]'

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    @property
    def factor(self) -> str:
        return repr(1 + self.delta)

    def off(self, value: float) -> str:
        """A constant, moved by the mutation's relative size."""
        return repr(value * (1 + self.delta))


Form = Callable[[Context], list[str]]


@dataclass(frozen=True)
class Kind:
    """A kind of block. `params` and `tables` map names to shapes in letters (B, T, D) or numbers; `tables` and `data`
    say, after a colon, how they are filled. `options` lists what each option is drawn from."""

    name: str
    slot: str
    form: Form
    params: dict[str, str]
    data: dict[str, str]
    tables: dict[str, str]
    options: dict[str, tuple]
    coupled: bool  # Whether rows of a batch meet: it cannot be cut into parts.
    draws: bool


@dataclass(frozen=True)
class Edit:
    """A registered rewrite or mutation of one kind of block, or of "any" of its slot."""

    name: str
    kind: str
    slot: str
    form: Form
    reason: str
    mutates: bool
    scaled: bool  # Whether the mutation's size is drawn; otherwise the form itself says how much changes.
    causes: tuple[str, ...]
    needs: Callable[[dict[str, Any]], bool]  # Whether a block with these options has this edit.
    after: bool  # The place may also be what follows, as for what is left out, or only moves or cuts.
    whole: bool  # Only in programs whose step sees the batch whole.


KINDS: dict[str, Kind] = {}
REWRITES: dict[str, Edit] = {}
MUTATIONS: dict[str, Edit] = {}


def kind(
    slot: str,
    params: str = "",
    data: str = "",
    tables: str = "",
    coupled: bool = False,
    draws: bool = False,
    **options: tuple,
) -> Callable[[Form], Form]:
    def register(form: Form) -> Form:
        name = form.__name__.rstrip("_")
        assert name not in KINDS, name
        KINDS[name] = Kind(
            name, slot, form, _shapes(params), _shapes(data), _shapes(tables), dict(options), coupled, draws
        )
        return form

    return register


def _shapes(text: str) -> dict[str, str]:
    """From "w D,D; b D" to {"w": "D,D", "b": "D"}."""
    return dict(part.strip().split(" ", 1) for part in text.split(";") if part.strip())


def rewrite(
    of: str,
    causes: tuple[str, ...] = ("ROUNDING",),
    needs: Callable[[dict], bool] = lambda options: True,
    whole: bool = False,
) -> Callable[[Form], Form]:
    return _edit(REWRITES, of, mutates=False, scaled=False, causes=causes, needs=needs, whole=whole)


def mutation(
    of: str,
    scaled: bool = False,
    causes: tuple[str, ...] = ("MATHEMATICS",),
    needs: Callable[[dict], bool] = lambda options: True,
    after: bool = False,
) -> Callable[[Form], Form]:
    return _edit(MUTATIONS, of, mutates=True, scaled=scaled, causes=causes, needs=needs, after=after)


def _edit(registry: dict[str, Edit], of: str, **given: Any) -> Callable[[Form], Form]:
    def register(form: Form) -> Form:
        assert form.__doc__, f"{form.__name__} has no reason"
        assert form.__name__ not in REWRITES and form.__name__ not in MUTATIONS, form.__name__
        slot, any_of = (of.removeprefix("any "), True) if of.startswith("any ") else (KINDS[of].slot, False)
        settings = {"after": False, "whole": False, **given}
        registry[form.__name__] = Edit(
            form.__name__, "any" if any_of else of, slot, form, " ".join(form.__doc__.split()), **settings
        )
        return form

    return register
