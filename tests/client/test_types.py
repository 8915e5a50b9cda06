"""The types of the public API: mypy's strict rules hold, and a program that uses it wrongly is told so."""

from pathlib import Path

from types_of_client import check

PROGRAM = """
import plumbline
import torch

def target() -> dict[str, torch.Tensor]:
    return {"x": torch.ones(3).sum()}

reveal_type(plumbline.compare(target, None))
reveal_type(plumbline.compare(target, target).taps["x"].surprise)
plumbline.compare(3, None)
plumbline.watch(torch.nn.Linear(1, 1), None, job="j", every="often")
"""


def test_the_public_api_is_strictly_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = check(program)
    # mypy keeps what it said of a program of the same content and name, with the folder that it lay in then.
    assert [line for line in said if "/program.py:" not in line] == []
    revealed, measured, wrong, often = (line.split(": ", 1)[1] for line in said)
    assert revealed == 'note: Revealed type is "plumbline.verdict.Verdict"'
    assert measured == 'note: Revealed type is "float"'
    assert wrong.startswith('error: Argument 1 to "compare" has incompatible type "int"')
    assert often.startswith('error: Argument "every" to "watch" has incompatible type "str"')
