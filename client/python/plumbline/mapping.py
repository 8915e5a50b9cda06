"""How tensors of one program are made of the other's: layouts that differ where the mathematics does not.

    plumbline.compare(fused, separate, mapping={
        "attn.qkv.weight": concat("attn.q.weight", "attn.k.weight", "attn.v.weight"),
        "fc.weight": transpose("fc.weight"),
    })

A name is that of a parameter (or buffer) in its model, or of a tap. One of a parameter also stands for the taps
"grad:NAME", "weight:NAME" and the like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from .errors import PlumblineError


@dataclass(frozen=True)
class Transposed:
    of: Made


@dataclass(frozen=True)
class Concatenated:
    parts: tuple[Made, ...]
    dim: int
    sizes: tuple[int, ...] | None


Made = str | Transposed | Concatenated


def transpose(of: Made) -> Transposed:
    """The other program's tensor with its last two dimensions exchanged."""
    return Transposed(of)


def concat(*parts: Made, dim: int = 0, sizes: tuple[int, ...] | None = None) -> Concatenated:
    """The other program's tensors put together along `dim`; `sizes` of each along it, by default equal ones."""
    return Concatenated(parts, dim, sizes)


def check_mapping(mapping: Mapping[str, Made]) -> None:
    for name, made in mapping.items():
        if not names_of(made):
            raise PlumblineError(f"mapping of {name!r}: expected one part or more, found none")


def names_of(made: Made) -> list[str]:
    if isinstance(made, str):
        return [made]
    if isinstance(made, Transposed):
        return names_of(made.of)
    if isinstance(made, Concatenated):
        return [name for part in made.parts for name in names_of(part)]
    raise PlumblineError(f"mapping: expected a name, transpose(...) or concat(...), found {made!r}")


def split(name: str, made: Made, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The parts of a tensor by the other program's names: views."""
    if isinstance(made, str):
        yield made, tensor
    elif isinstance(made, Transposed):
        if tensor.dim() < 2:
            raise PlumblineError(f"mapping of {name!r}: expected two dimensions or more, found {list(tensor.shape)}")
        yield from split(name, made.of, tensor.transpose(-2, -1))
    else:
        count = len(made.parts)
        if not -tensor.dim() <= made.dim < tensor.dim():
            raise PlumblineError(f"mapping of {name!r}: dim {made.dim} of shape {list(tensor.shape)}")
        length = tensor.shape[made.dim]
        sizes = made.sizes or (length // count,) * count
        if len(sizes) != count or sum(sizes) != length:
            raise PlumblineError(
                f"mapping of {name!r}: expected {count} sizes that add up to {length}, found {list(sizes)}"
            )
        for part, view in zip(made.parts, torch.split(tensor, list(sizes), made.dim), strict=True):
            yield from split(name, part, view)


class Side:
    """What a mapping asks of one of the two programs: parts in place of the tensors that it names."""

    def __init__(self, mapping: Mapping[str, Made], is_reference: bool) -> None:
        # A name that both programs have is the target's.
        self._mapping = {n: made for n, made in mapping.items() if not is_reference or n not in names_of(made)}
        self.used: set[str] = set()
        self.shapes: dict[str, list[int]] = {}  # Of taps and parameters, as they are compared.

    def maps(self, name: str) -> bool:
        """Whether it asks for parts of the parameter or buffer; the name may have "param:" before it."""
        return name.partition(":")[2] in self._mapping or name in self._mapping

    def parameter(self, name: str, tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]] | None:
        """The parts of a parameter or buffer; None where it is not mapped."""
        made = self._mapping.get(name)
        parts = [(name, tensor)] if made is None else list(split(name, made, tensor.detach()))
        self._note(name if made is not None else "", "parameter ", parts)
        return None if made is None else parts

    def tap(self, name: str, tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        prefix, _, bare = name.rpartition(":")
        key = name if name in self._mapping else bare
        made = self._mapping.get(key)
        if made is None:
            parts = [(name, tensor)]
        else:
            lead = "" if key == name or not prefix else prefix + ":"
            parts = [(lead + part, view) for part, view in split(name, made, tensor)]
        self._note(key if made is not None else "", "tap ", parts)
        return parts

    def _note(self, used: str, what: str, parts: list[tuple[str, torch.Tensor]]) -> None:
        if used:
            self.used.add(used)
        for name, view in parts:
            self.shapes.setdefault(f"{what}{name!r}", list(view.shape))


def check_sides(mapping: Mapping[str, Made], target: Side, reference: Side) -> None:
    """Raises PlumblineError for a mapping that applies to neither program or to both, and for shapes that differ."""
    for name in mapping:
        if name in target.used and name in reference.used:
            raise PlumblineError(f"mapping of {name!r}: expected in one of the two programs, found in both")
        if name not in target.used and name not in reference.used:
            raise PlumblineError(f"mapping of {name!r}: neither program has such a parameter or tap")
    for what, shape in target.shapes.items():
        other = reference.shapes.get(what, shape)
        if other != shape:
            raise PlumblineError(f"{what}: target has shape {shape}, reference {other}; see `mapping`")
