"""What the stage does not let pass: a block of a document that runs, but does not do what a reader would rely on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from commands import Command
from private_daemon import running
from stage import Stage, stage

WATCHED = """
audit = plumbline.watch(model, optimizer, "unix:///run/plumbline.sock", job="document", every=1)
for batch in loader:
    with audit.step():
        {before}
        train(batch)
"""
TESTED = "def test_mean(plumbline_server):\n    assert {claim} and plumbline_server\n"


@pytest.fixture(scope="module")
def on() -> Iterator[Stage]:
    with running() as daemon, stage(daemon.address) as made:
        yield made


@pytest.mark.parametrize("text", [WATCHED.format(before="pass"), TESTED.format(claim="target()['mean'] == 1")])
def test_what_is_as_it_should_be(on: Stage, text: str) -> None:
    on.run(Command("a.md:1", "python", text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WATCHED.format(before="audit.tap('loss', 0.5)"), "expected a tensor, found 0.5"),
        (WATCHED.format(before="audit.reference({'loss': 7.0})"), "TYPE_II"),
        (TESTED.format(claim="target()['mean'] == 2"), "1 failed"),
    ],
)
def test_what_is_not(on: Stage, text: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        on.run(Command("a.md:1", "python", text))
