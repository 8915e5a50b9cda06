"""Partial steps through client and daemon: what they prove, what they say they covered, and what a budget does."""

import json
from typing import Any

import grpc
import pytest
import torch
import torch.nn.functional as F
from query_support import run_plumb
from stream_client import Client, StepFrames, frame, violations
from stream_daemon import DaemonProcess
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import plumbline
from plumbline.v1 import audit_pb2


class Network(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.inner = nn.ModuleList([nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4)])
        self.head = nn.Linear(8, 5)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        for block in self.inner:
            x = x + block(x)
        return self.head(x)


class Wide(nn.Sequential):
    """The same mathematics as a block of Network, in another order; `scale` makes it another."""

    scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        up, act, down = self
        hidden = act(torch.cat([up(half) for half in x.chunk(2)])) * self.scale
        return torch.cat([F.linear(half, down.weight) for half in hidden.chunk(2)]) + down.bias


class WrongProduct(TorchDispatchMode):
    """The n-th product of two matrices is off in one element, as a broken kernel's would be."""

    def __init__(self, turn: int) -> None:
        super().__init__()
        self.turn = turn

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.addmm.default:
            self.turn -= 1
            if self.turn == -1:
                out[1, 2] *= 1.01
        return out


def train(
    daemon: DaemonProcess, model: nn.Module, steps: int = 1, turn: int | None = None, **options: Any
) -> dict[int, plumbline.Verdict]:
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    optimizer = torch.optim.AdamW(model.parameters())
    with plumbline.watch(
        model, optimizer, daemon.address, job="scope", every=1, on_type_ii="ignore", **options
    ) as audit:
        assert audit._transport.wait_open(30)
        for _ in range(steps):
            x, y = torch.randn(6, 8), torch.randint(0, 5, (6,))
            # An emulated kernel lies around the step: capture, entered last, sees the plain operation.
            with WrongProduct(-1 if turn is None else turn), audit.step():
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            optimizer.zero_grad()
            assert audit.flush(60)
        assert not audit.errors() and not audit.missed(), (audit.errors(), list(audit._missed))
        return {verdict.step: verdict for verdict in audit.verdicts()}


@pytest.mark.parametrize(("turn", "outcome"), [(None, "TYPE_I"), (2, "TYPE_II"), (4, "TYPE_I")])
def test_a_wrong_product_is_found_where_it_is_in_the_scope(
    shared_daemon: DaemonProcess, run: str, turn: int | None, outcome: str
) -> None:
    (verdict,) = train(shared_daemon, Network(), turn=turn, scope="inner.1", run=run, capture="outputs").values()
    assert verdict.verdict == outcome, verdict
    if outcome == "TYPE_II":
        assert verdict.cause == "EXECUTION" and verdict.suspect.module == "inner.1.0"
    else:
        assert "Only a part was audited: 5 of 18 modules, " in verdict.sentence  # The root, a block and what it holds.


def test_pairs_of_partial_steps(shared_daemon: DaemonProcess, run: str) -> None:
    scope = ["inner.2"]
    train(shared_daemon, Network(), steps=2, scope=scope, run=run, keep_trace=True)
    for scale, outcome in ((1.0, "TYPE_I"), (1.0001, "TYPE_II")):
        model = Network()
        model.inner[2] = Wide(*model.inner[2])
        model.inner[2].scale = scale
        verdicts = train(shared_daemon, model, steps=2, scope=scope, run=f"{run}-{scale}", reference=run)
        assert {verdict.verdict for verdict in verdicts.values()} == {outcome}, verdicts[1].explain()
    # What differs lies out of view: nothing is said of it.
    model = Network()
    model.inner[1] = Wide(*model.inner[1])
    model.inner[1].scale = 1.0001
    verdicts = train(shared_daemon, model, scope=scope, run=f"{run}-out", reference=run)
    assert verdicts[0].verdict == "TYPE_I" and "Only a part" in verdicts[0].sentence


def test_other_scopes_are_never_taken_for_other_mathematics(shared_daemon: DaemonProcess, run: str) -> None:
    train(shared_daemon, Network(), scope="inner.2", run=run, keep_trace=True)
    for name, scope in (("other", "inner.1"), ("whole", None)):
        (verdict,) = train(shared_daemon, Network(), scope=scope, run=f"{run}-{name}", reference=run).values()
        assert verdict.verdict != "TYPE_II", verdict.explain()


def test_coverage_of_a_window(shared_daemon: DaemonProcess, run: str) -> None:
    model = Network()
    verdicts = train(shared_daemon, model, steps=3, scope="rotate", run=run)
    assert {verdict.verdict for verdict in verdicts.values()} == {"TYPE_I"}
    first = verdicts[0].coverage
    assert first.partial and 1 < first.modules_audited < first.modules == 18
    seen = {module.path for verdict in verdicts.values() for module in verdict.coverage.audited_modules}
    done = run_plumb(shared_daemon, "jobs", "--json", "--job=scope")
    (job,) = [json.loads(line) for line in done.stdout.splitlines()]
    (covered,) = job["coverage"]
    assert covered["run"] == run and int(covered["steps"]) == int(covered["partial"]) == 3
    assert int(covered["modules_audited"]) == len(seen) < 18
    assert len(covered["left_out"]) == 18 - len(seen) and not seen & set(covered["left_out"])

    train(shared_daemon, model, steps=1, scope="*", run=f"{run}-all")
    text = run_plumb(shared_daemon, "jobs", "--job=scope").stdout
    assert "18 of 18" in text
    assert "18 of 18" in run_plumb(shared_daemon, "verdicts", "--job=scope", f"--run={run}-all").stdout
    whole = train(shared_daemon, model, run=f"{run}-whole")[0].coverage
    assert not whole.partial and whole.modules == whole.modules_audited == 18
    assert whole.parameters == whole.parameters_audited == sum(p.numel() for p in model.parameters())


def test_a_budget_is_kept_and_every_module_has_its_turn(shared_daemon: DaemonProcess, run: str) -> None:
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen: set[str] = set()
    with plumbline.watch(
        model, optimizer, shared_daemon.address, job="scope", run=run, every=20, scope="rotate", budget=0.5
    ) as audit:
        for _ in range(3000):
            with audit.step():
                F.cross_entropy(model(torch.randn(6, 8)), torch.randint(0, 5, (6,))).backward()
                optimizer.step()
            optimizer.zero_grad()
            seen = {m.path for v in audit.verdicts() for m in v.coverage.audited_modules}
            if len(seen) == 18 and audit._every != 20:
                break
        assert audit.flush(60) and not audit.errors()
    assert len(seen) == 18 and audit._every != 20  # The daemon's decision.


@pytest.mark.parametrize(
    ("scope", "field"),
    [
        (audit_pb2.Scope(partial=True, modules=["a"] * 5000, modules_total=5000), "step_begin.scope.modules"),
        (audit_pb2.Scope(partial=True, left_out=["a" * 5000]), "step_begin.scope.left_out[0]"),
        (audit_pb2.Scope(partial=True, modules=["a", "b"], modules_total=1), "step_begin.scope.modules_total"),
    ],
)
def test_a_scope_that_cannot_be(client: Client, run: str, scope: audit_pb2.Scope, field: str) -> None:
    stream = client.stream(run)
    begin, *rest = StepFrames(0).frames()
    begin.step_begin.scope.CopyFrom(scope)
    stream.send(begin, *rest)
    assert [found for found, _ in violations(stream.next("error").status)] == [field]
    stream.send(*StepFrames(1).frames())
    assert stream.next("verdict").step == 1


def test_measurements_that_cannot_be_are_left_out(client: Client, run: str) -> None:
    stream = client.stream(run, budget=audit_pb2.Budget(step_share=0.02))
    for wrong in ({"step_seconds": float("nan")}, {"cost_seconds": -1.0}, {"slice": 0.0}, {"steps": -5}, {"since": -1}):
        sound = {"steps": 1, "step_seconds": 0.1, "cost_seconds": 0.01, "slice": 1.0}
        stream.send(frame(pace=audit_pb2.Pace(**{**sound, **wrong})))
    stream.send(frame(pace=audit_pb2.Pace(steps=1, step_seconds=1.0, cost_seconds=1.0, slice=1.0)))
    assert stream.next("control").every == 99  # A step spent and a step to come, at 2 % of a step each step, less one.
    assert stream.close() == grpc.StatusCode.OK


@pytest.mark.parametrize(
    "budget", [{"step_share": 1.0}, {"step_share": -0.1}, {"bytes_per_second": float("inf")}, {"step_share": 0.5}]
)
def test_budgets_that_cannot_be(client: Client, run: str, budget: dict[str, float]) -> None:
    client.open(run, budget=audit_pb2.Budget(step_share=0.25))
    with pytest.raises(grpc.RpcError) as refused:  # The last one differs from what the run was opened with.
        client.open(run, budget=audit_pb2.Budget(**budget))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "budget" in refused.value.details()
