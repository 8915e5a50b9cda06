"""Profiles as files: found, widened by options, and written with what was measured."""

from __future__ import annotations

import math
from pathlib import Path

from google.protobuf import text_format

from ..daemon import binary
from ..errors import PlumblineError
from ..v1.profile_pb2 import DeviceProfile


def directory() -> Path:
    """The checkout's profiles, or those installed beside plumblined."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "deploy" / "profiles").is_dir():
            return parent / "deploy" / "profiles"
    return Path(binary()).resolve().parent.parent / "share" / "plumbline" / "profiles"


def load(base: str) -> DeviceProfile:
    """A file, or a shipped profile's name with options. Raises PlumblineError."""
    name, *options = base.split("+")
    path = Path(base) if base.endswith(".textproto") else directory() / f"{name}.textproto"
    try:
        profile = text_format.Parse(path.read_text(), DeviceProfile())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as failure:
        known = ", ".join(sorted(file.stem for file in directory().glob("*.textproto")))
        raise PlumblineError(
            f"--base: expected one of {known} or a profile's file, found {base!r}: {failure}"
        ) from None
    if not base.endswith(".textproto"):
        for option in options:
            _permit(profile, option)
    return profile


def _permit(profile: DeviceProfile, option: str) -> None:
    """As the daemon does (server/profile/profile_registry.cc)."""
    if option == "tf32":
        profile.tf32_allowed = True
    elif option == "tf32-convolutions":
        pass  # Nothing here convolves.
    elif option == "reduced":
        profile.split_k.reduced = True
    elif option == "elided":
        profile.casts_elided = True
    elif option == "fp16-accumulation":
        for product in profile.products:
            if product.inputs == "fp16":
                product.accumulator_bits = 11
    else:
        known = "tf32, tf32-convolutions, reduced, elided or fp16-accumulation"
        raise PlumblineError(f"--base: expected options {known}, found {option!r}")


def with_headroom(measured: float) -> float:
    """A sample's largest error is no bound: twice as much, in halves."""
    return math.ceil(4 * measured) / 2 if math.isfinite(measured) else measured


def text_of(profile: DeviceProfile, comments: dict[str, str], head: list[str]) -> str:
    """Text that the daemon reads, a line of comment above what was measured. Keys: as findings name claims."""
    lines = ["# proto-file: proto/plumbline/v1/profile.proto", "# proto-message: DeviceProfile", "#"]
    lines += [f"# {line}" for line in head]
    for descriptor, value in profile.ListFields():
        for item in value if descriptor.is_repeated else [value]:
            key = descriptor.name
            if key in ("functions", "products"):
                key += "." + (item.function if key == "functions" else item.inputs)
            lines += [f"# {comments[key]}"] if key in comments else []
            one = DeviceProfile()
            if descriptor.is_repeated:
                getattr(one, descriptor.name).append(item)
            elif descriptor.message_type:
                getattr(one, descriptor.name).CopyFrom(item)
            else:
                setattr(one, descriptor.name, item)
            lines.append(text_format.MessageToString(one, as_one_line=True).strip())
    return "\n".join(lines) + "\n"
