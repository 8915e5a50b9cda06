"""What a verdict prints."""

import math

from plumbline import Verdict
from plumbline.v1 import verdict_pb2 as pb


def verdict() -> Verdict:
    message = pb.Verdict(
        id="default/job/run/0/3",
        verdict=pb.TYPE_II,
        grade=pb.PROVEN,
        cause=pb.EXECUTION,
        sentence="The result of aten::mm is no legal rounding.",
        suspect=pb.Place(op="aten::mm", source="train.py:7"),
        surprise=math.inf,
        deviation=0.5,
        envelope=0.25,
        margin=2.0,
        math_resolution=math.nan,
        exec_resolution=1e-6,
        explained=math.nan,
    )
    for name, outcome in (("loss", pb.TYPE_I), ("grad:w", pb.TYPE_II), ("grad:b", pb.TYPE_I)):
        message.taps.add(name=name, outcome=outcome, low=math.nan)
    return Verdict(message)


def test_print_gives_the_answer_first() -> None:
    first, second, third = str(verdict()).splitlines()
    assert first == "TYPE_II (PROVEN)  cause: execution  surprise: inf"
    assert second == "suspect: train.py:7  aten::mm"
    assert third == "The result of aten::mm is no legal rounding."


def test_explain_leaves_out_what_was_not_asked_and_what_passed() -> None:
    text = verdict().explain()
    assert "deviation        0.5   envelope 0.25   margin 2   (relative)" in text
    assert "resolution       execution 1e-06   (relative)" in text and "explained" not in text.replace("explain(", "")
    assert "  grad:w  TYPE_II" in text and "loss" not in text
    assert "2 passed (explain(all=True))" in text
    whole = verdict().explain(all=True)
    assert "  loss " in whole and "  grad:b " in whole and "passed" not in whole
