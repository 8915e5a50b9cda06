"""The pytest plugin of Plumbline: a daemon for a session of tests, and verdicts that are compared line by line.

It lies outside of the package plumbline, which it imports where a test asks for it: pytest loads every installed
plugin, and importing plumbline imports PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from plumbline import Verdict


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("plumbline").addoption(
        "--plumbline-server",
        metavar="ADDRESS",
        help="the plumblined that the fixture plumbline_server names, such as unix:///run/plumbline.sock;"
        " without it, a private one is started for the session",
    )


@pytest.fixture(scope="session")
def plumbline_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a plumblined, for `server=` of plumbline.compare and assert_equivalent, and for plumbline.watch."""
    given: str | None = request.config.getoption("--plumbline-server")
    if given:
        yield given
        return
    from plumbline.daemon import private

    with private() as address:
        yield address


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    module = sys.modules.get("plumbline.verdict")
    if module is None or op != "==" or not isinstance(left, module.Verdict) or not isinstance(right, module.Verdict):
        return None
    return ["verdicts that differ", *differences(left, right)]


def differences(left: Verdict, right: Verdict) -> list[str]:
    """A line for each thing that two verdicts say differently."""
    lines = []

    def compare(name: str, one: object, other: object) -> None:
        if str(one) != str(other):
            lines.append(f"  {name}: {one} != {other}")

    compare("verdict", _judged(left), _judged(right))
    for name in ("cause", "suspect", "reference", "profile", "sentence"):
        compare(name, getattr(left, name), getattr(right, name))
    for name in dict.fromkeys([*left.taps, *right.taps]):
        one, other = (verdict.taps.get(name) for verdict in (left, right))
        compare(
            f"tap {name}",
            "not there" if one is None else f"{one.outcome} surprise {one.surprise:.3g}",
            "not there" if other is None else f"{other.outcome} surprise {other.surprise:.3g}",
        )
    return lines or ["  in figures alone: compare their explain(all=True)"]


def _judged(verdict: Verdict) -> str:
    return f"{verdict.verdict} {verdict.grade} surprise {verdict.surprise:.3g}"
