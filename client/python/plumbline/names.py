"""What people and scripts see of an enum's value: its name without the prefix that the protocol's style asks for."""

from __future__ import annotations

from typing import Any


def short_name(kind: Any, value: int) -> str:
    """ "TYPE_II" of OUTCOME_TYPE_II, by `kind`, an enum of the protocol such as verdict_pb2.Outcome.

    The value 0 keeps its name, "OUTCOME_UNSPECIFIED". A value that this client does not know is its number.
    """
    known = kind.DESCRIPTOR.values_by_number.get(value)
    if known is None:
        return str(value)
    name: str = known.name
    prefix: str = kind.DESCRIPTOR.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return name if value == 0 else name.removeprefix(prefix)
