"""Compiled programs: regions whose graphs were recorded, regions that stay opaque, and bits that stay the same."""

import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recording_daemon import RecordingDaemon
from torch import Tensor, fx, nn

import plumbline

WIDTH = 8


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Network(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.mean = nn.BatchNorm1d(2 * WIDTH)
        self.norm = nn.LayerNorm(2 * WIDTH)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(2 * WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(F.relu(self.mean(self.fc(x))))
        return self.head(torch.tanh(self.drop(x)))


def program(backend: Any, dropout: float = 0.0) -> Callable[[], dict[str, Tensor]]:
    """One step; backend None: not compiled."""
    torch.manual_seed(5)
    model = Network(dropout)
    x, y = torch.randn(16, WIDTH), torch.randn(16, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run = model if backend is None else torch.compile(model, backend=backend)

    def step() -> dict[str, Tensor]:
        loss = (run(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        grads = {f"grad:{name}": p.grad for name, p in model.named_parameters()}
        return {"loss": loss.detach(), "running_mean": model.mean.running_mean, **grads}

    return step


def edited(*edits: Callable[[fx.Graph], None]) -> Any:
    """A backend that compiles another graph than it is given, as a compiler with a bug or with a licence would."""

    def backend(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        for edit in edits:
            edit(module.graph)
        module.recompile()
        return module.forward

    return plumbline.compile_backend(backend)


@pytest.mark.parametrize("capture", ["leaves", "outputs"])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_a_recorded_region_is_audited_by_its_operations(server: str, dropout: float, capture: str) -> None:
    compiled, plain = program(plumbline.compile_backend("aot_eager"), dropout), program(None, dropout)
    verdict = plumbline.compare(compiled, plain, server=server, capture=capture)
    assert verdict.verdict == "TYPE_I" and verdict.coverage.opaque == 0, verdict.explain()
    assert verdict.math_resolution < 1e-9
    assert not any("drift" in note for note in verdict.notes), verdict.notes  # Dropout's mask has its counterpart.


def test_what_a_compiler_gets_wrong_is_no_rounding(server: str) -> None:
    def scaled(graph: fx.Graph) -> None:
        for node in list(graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)):
            with graph.inserting_after(node):
                wrong = graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.01))
            node.replace_all_uses_with(wrong, delete_user_cb=lambda user, wrong=wrong: user is not wrong)

    verdict = plumbline.compare(program(edited(scaled)), program(None), server=server, capture="outputs")
    assert (verdict.verdict, verdict.cause) == ("TYPE_II", "EXECUTION"), verdict.explain()


def test_casts_that_a_compiler_elides_are_rounding(server: str) -> None:
    elided = []

    def elide(graph: fx.Graph) -> None:
        """Values that were to be stored in bf16 and read again stay in fp32."""
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default):
            with graph.inserting_before(node):
                wide = graph.call_function(torch.ops.aten._to_copy.default, (node.args[0],), {"dtype": torch.float32})
            node.args = (wide,)
            for user in list(node.users):
                if user.op != "output" and user.target is torch.ops.aten.add.Tensor:
                    elided.append(user)
        graph.lint()

    def step(backend: Any) -> Callable[[], dict[str, Tensor]]:
        torch.manual_seed(6)
        x = torch.randn(64, WIDTH).bfloat16()

        def region(x: Tensor) -> Tensor:
            return torch.tanh(x * 1.1) + x * 0.3

        run = region if backend is None else torch.compile(region, backend=backend)
        return lambda: {"y": run(x).float().square().mean(), "out": run(x)}

    verdict = plumbline.compare(step(edited(elide)), step(None), server=server)
    assert elided and verdict.verdict == "TYPE_I" and verdict.coverage.opaque == 0, verdict.explain()
    assert verdict.cause in ("ROUNDING", "PRECISION_POLICY") and verdict.grade != "MATCH"


@torch.library.custom_op("plumbline_test::halved", mutates_args=())
def halved(x: Tensor) -> Tensor:
    return x / 2


@halved.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_what_cannot_be_recorded_is_one_opaque_node(server: str, caplog: pytest.LogCaptureFixture) -> None:
    class Block(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return halved(torch.sin(x)) + 1

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = torch.compile(Block(), backend=plumbline.compile_backend("aot_eager"))

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x.exp()).square().mean()

    def step(factor: float) -> Callable[[], dict[str, Tensor]]:
        torch.manual_seed(7)
        outer, x = Outer(), torch.randn(6)
        return lambda: {"y": outer(x) * factor}

    with caplog.at_level(logging.WARNING, "plumbline"):
        verdict = plumbline.compare(step(1.0), step(1.0), server=server)
    assert list(verdict.coverage.opaque_names) == ["torch.compile::block.forward"]
    assert verdict.verdict == "TYPE_I", verdict.explain()
    assert any("plumbline_test::halved" in record.message for record in caplog.records)
    other = plumbline.compare(step(1.001), step(1.0), server=server)
    assert (other.verdict, other.cause) == ("TYPE_II", "MATHEMATICS"), other.explain()  # The rest is audited.


def test_names_are_those_of_the_eager_program(daemon: RecordingDaemon) -> None:
    model = nn.Sequential(nn.Linear(4, 4), torch.compile(nn.Linear(4, 1), backend="aot_eager"))
    model(torch.ones(2, 4))
    audit = plumbline.watch(model, None, daemon.address, job="names", every=1)
    for _ in range(3):  # The first compiles the backward, the second is watched for compilation.
        with audit.step():
            model(torch.ones(2, 4)).sum().backward()
    assert audit.flush(10)
    frames = daemon.steps[-1]
    assert {frame.leaf.name for frame in frames if frame.HasField("leaf") and frame.leaf.role == 2} == {
        "param:0.weight",
        "param:0.bias",
        "param:1.weight",
        "param:1.bias",
    }
    assert {frame.op.module for frame in frames if frame.HasField("op")} >= {"0", "1"}
    audit.close()


@pytest.mark.parametrize("recorded", [False, True])
def test_bits_and_compilations_stay_the_same(daemon: RecordingDaemon, recorded: bool) -> None:
    def train(audited: bool) -> tuple[list[Tensor], dict]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(4)
        model = Network(0.1)
        backend = plumbline.compile_backend("aot_eager") if recorded else "aot_eager"
        compiled = torch.compile(model, backend=backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        address = daemon.address if audited else "unix:/nowhere"
        audit = plumbline.watch(compiled, optimizer, address, job=f"compiled-{recorded}", every=2)
        for step in range(10):
            rows = 4 if step < 6 else 6  # Another batch size: the region is compiled again.
            with audit.step():
                compiled(torch.randn(rows, WIDTH)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            assert not audited or audit.flush(10)
        audit.close()
        return [p.detach().clone() for p in model.parameters()], dict(torch._dynamo.utils.counters["stats"])

    plain, plain_counts = train(False)
    watched, watched_counts = train(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert plain_counts == watched_counts
    assert len(daemon.steps) >= 3
    regions = {frame.op.region for frame in daemon.steps[-1] if frame.HasField("op")} - {""}
    opaque = {frame.op.name for frame in daemon.steps[-1] if frame.op.name.startswith("torch.compile::")}
    # The recording daemon models nothing but one product, so that recorded regions stay whole.
    assert not regions and (opaque == {"torch.compile::program.forward", "torch.compile::program.backward"}) is recorded


def test_a_backend_that_hides_what_it_computes_is_refused_once(
    daemon: RecordingDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    def hidden(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return module.forward

    model = nn.Linear(4, 1)
    compiled = torch.compile(model, backend=hidden)
    audit = plumbline.watch(compiled, None, daemon.address, job="hidden", every=1)
    for _ in range(4):
        with audit.step():
            compiled(torch.ones(2, 4)).sum().backward()
    audit.close()
    assert daemon.steps == []
    assert sum("plumbline.compile_backend" in record.message for record in caplog.records) == 1


def test_an_error_in_a_region_reaches_the_job_and_nothing_else_does(daemon: RecordingDaemon) -> None:
    def failing(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            if args[0].sum() > 100:
                raise ArithmeticError("of the kernel")
            return module.forward(*args)

        return run

    compiled = torch.compile(lambda x: x * 2, backend=plumbline.compile_backend(failing))
    compiled(torch.ones(3))
    audit = plumbline.watch(nn.Linear(1, 1), None, daemon.address, job="failing", every=1)
    for size in (1.0, 1.0, 1e3, 1.0):
        expected = pytest.raises(ArithmeticError, match="of the kernel") if size > 1 else contextlib.nullcontext()
        with expected, audit.step():
            audit.tap("y", compiled(torch.full((3,), size)))
    assert audit.flush(10)
    assert daemon.step_numbers() == [1, 3]
    audit.close()


def test_what_the_default_backend_compiles_is_audited_by_its_operations(server: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with plumbline.watch(model, optimizer, server=server, job="default-backend", every=1) as audit:
        compiled = torch.compile(model)
        x = torch.randn(3, 4)
        for _ in range(3):
            with audit.step():
                optimizer.zero_grad()
                compiled(x).square().mean().backward()
                optimizer.step()
        assert audit.flush()
        verdicts = audit.verdicts()
    assert verdicts and all(verdict.verdict == "TYPE_I" for verdict in verdicts)
    assert all(verdict.coverage.opaque == 0 for verdict in verdicts), verdicts[0].explain()
    torch._dynamo.reset()


FIRST_USE = """
import sys
import torch
import plumbline

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
x = torch.randn(4, 8)

def step(run):
    loss = run(x).square().mean()
    return {"loss": loss, "grad": torch.autograd.grad(loss, model[0].weight)[0]}

original = torch.compile
assert "torch._dynamo" not in sys.modules
verdict = plumbline.compare(lambda: step(torch.compile(model, backend="aot_eager")), lambda: step(model), sys.argv[1])
assert torch.compile is original
print(verdict.verdict, verdict.coverage.opaque)
"""


def test_a_step_may_be_the_first_to_ask_for_compilation(server: str) -> None:
    """Nothing of the compiler is loaded before, in a process of its own."""
    command = [sys.executable, "-c", FIRST_USE, server]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["TYPE_I", "0"]
