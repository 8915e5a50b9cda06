"""What a verdict prints, and in what words."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import plumbline
from plumbline import Verdict
from plumbline.names import short_name
from plumbline.v1 import verdict_pb2 as pb


def verdict() -> Verdict:
    message = pb.Verdict(
        id="default/job/run/0/3",
        verdict=pb.OUTCOME_TYPE_II,
        grade=pb.GRADE_PROVEN,
        cause=pb.CAUSE_EXECUTION,
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
    for name, outcome in (("loss", pb.OUTCOME_TYPE_I), ("grad:w", pb.OUTCOME_TYPE_II), ("grad:b", pb.OUTCOME_TYPE_I)):
        message.taps.add(name=name, outcome=outcome, low=math.nan)
    return Verdict(message)


def test_values_are_named_without_their_prefix() -> None:
    said = verdict()
    assert (said.verdict, said.grade, said.cause) == ("TYPE_II", "PROVEN", "EXECUTION")
    assert [tap.outcome for tap in said.taps.values()] == ["TYPE_I", "TYPE_II", "TYPE_I"]
    assert Verdict(pb.Verdict()).verdict == short_name(pb.Outcome, 0) == "OUTCOME_UNSPECIFIED"
    assert short_name(pb.TraceState, pb.TRACE_STATE_KEPT) == "KEPT"
    assert Verdict(pb.Verdict(verdict=77)).verdict == "77", "a newer daemon's"


def test_print_gives_the_answer_first() -> None:
    first, second, third = str(verdict()).splitlines()
    assert first == "TYPE_II (PROVEN)  cause: execution  surprise: inf"
    assert second == "suspect: train.py:7  aten::mm"
    assert third == "The result of aten::mm is no legal rounding."


def test_explain_says_where_two_programs_part() -> None:
    said = verdict()
    assert "along the graph" not in said.explain()
    along = said.message.alignment
    along.operations.add(target=pb.Place(op="aten::mul"), reference=pb.Place(op="aten::mul"), deviation=0)
    parts = along.operations.add(target=pb.Place(op="aten::div", source="t.py:4"), deviation=0.5, allowed=1e-15)
    along.before, along.agree, along.differ = 7, 8, 1
    assert "no operation is where the programs part: 8 agree, 1 differ" in said.explain()
    along.parts = 1
    text = said.explain()
    assert "the programs part at operation 9: 8 agree, 1 differ" in text
    assert "  target     t.py:4  aten::div\n  reference  nothing in this place\n" in text
    assert "  deviation  0.5, where rounding explains 1e-15 (relative)" in text
    parts.deviation = math.nan
    assert "  deviation  " not in said.explain()


def test_explain_leaves_out_what_was_not_asked_and_what_passed() -> None:
    text = verdict().explain()
    assert "deviation        0.5   envelope 0.25   margin 2   (relative)" in text
    assert "resolution       execution 1e-06   (relative)" in text and "explained" not in text.replace("explain(", "")
    assert "  grad:w  TYPE_II" in text and "loss" not in text
    assert "2 passed (explain(all=True))" in text
    whole = verdict().explain(all=True)
    assert "  loss " in whole and "  grad:b " in whole and "passed" not in whole


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_data_without_a_name_is_told_by_its_format_its_shape_and_its_line(server: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(6, 2)
    batches = [drawn(1, 4, 6), drawn(2, 4, 6)]

    def program(batch: int) -> dict[str, Tensor]:
        x = batches[batch]
        return {"y": x @ weight}

    suspect = plumbline.compare(lambda: program(0), lambda: program(1), server).suspect
    assert suspect is not None and suspect.op == "leaf of data (fp32 [4, 6])"
    assert suspect.source == f"test_verdict_text.py:{program.__code__.co_firstlineno + 2}"


def test_many_values_are_told_together(server: str) -> None:
    names = [f"part{number}" for number in range(40)]
    x = {name: drawn(number, 5) for number, name in enumerate(names)}
    values = {name: x[name].exp() for name in names}
    verdict = plumbline.compare(lambda: {name: x[name].exp2() for name in names}, values, server)
    told = {*names, "all values", "all other reference values"}
    assert verdict.verdict == "TYPE_II"
    assert {tap.partition(" (")[0] for tap in verdict.taps} <= told, verdict.taps


def stepped(server: str, job: str, optimizer: torch.optim.Optimizer, model: nn.Module, **options: str) -> list[Verdict]:
    x, y = drawn(1, 32, 6), drawn(2, 32, 3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    kept = {} if "reference" in options else {"keep_trace": True}
    with plumbline.watch(model, optimizer, server, job=job, every=1, on_type_ii="ignore", **options, **kept) as audit:
        for _ in range(2):
            with audit.step():
                optimizer.step(closure)
            assert audit.flush()
        assert not audit.errors()
        return audit.verdicts()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize("rate", [1e-2, 1e-6])
def test_no_tolerance_is_made_of_one_weight_s_last_place(server: str, rate: float) -> None:
    """An update that is smaller than its weight's last place may be off by all of itself."""
    model = network()
    for verdict in stepped(server, f"small-{rate}", torch.optim.SGD(model.parameters(), rate), model):
        assert verdict.verdict == "TYPE_I", verdict.explain()
        assert not any("rtol" in line for line in verdict.advice), verdict.explain()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_another_rate_is_not_other_data(server: str, search: str | None) -> None:
    """Every evaluation of a closure but the first sees other weights, which the rate made."""

    def trained(rate: float, run: str, **options: str) -> list[Verdict]:
        model = network()
        optimizer = torch.optim.LBFGS(model.parameters(), rate, max_iter=3, line_search_fn=search)
        return stepped(server, f"quasi-newton-{search}", optimizer, model, run=run, **options)

    trained(0.5, "half")
    assert all(verdict.grade == "MATCH" for verdict in trained(0.5, "again", reference="half"))
    first = trained(0.25, "quarter", reference="half")[0]
    assert (first.verdict, first.cause) == ("TYPE_II", "MATHEMATICS"), first.explain()
    assert first.suspect is not None and first.suspect.op.startswith("aten::mul"), first.explain()
    assert "different data" not in first.explain()


def test_no_remedy_is_named_that_is_in_use(server: str) -> None:
    """What only an audit operation by operation could tell apart is not asked for where that was the audit."""
    a, b = drawn(1, 8, 512), drawn(2, 512)

    def program() -> dict[str, Tensor]:
        y = (a @ b).sigmoid()
        for _ in range(40):  # Each doubles what roundings did before.
            y = 3.99 * y * (1 - y)
        return {"y": y}

    told = {
        capture: plumbline.compare(program, None, server, capture=capture).explain()
        for capture in ("leaves", "outputs")
    }
    assert 'audit with capture="outputs"' in told["leaves"]
    assert "capture=" not in told["outputs"]
