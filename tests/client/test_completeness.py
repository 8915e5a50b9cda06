"""The trace says all: re-executing it from leaves and windows alone gives every result and tap, bit by bit."""

import ctypes

import pytest
import torch
from interpreter import Interpreter, Mismatch
from training import SETUPS, Run, Setup

from plumbline import dump
from plumbline.plan import Plan


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_training_step(setup: Setup) -> None:
    run = Run(setup)
    run.step()  # Lazy optimizer state exists from the second step on.
    for outputs in (True, False):
        before = run.weights()
        plan = Plan() if outputs else Plan(lowered=_Everything())
        messages = dump.record(run.step, [run.model], [run.optimizer], plan, outputs)
        interpreter = Interpreter(messages)
        named = {leaf.name for leaf in interpreter.leaves}
        after = run.weights()
        assert "loss" in interpreter.taps
        for name, _ in run.model.named_parameters():
            assert f"param:{name}" in named
            assert f"grad:{name}" in interpreter.taps
            update = after[name].double() - before[name].double()
            assert torch.equal(interpreter.taps[f"update:{name}"], update), name


class _Everything(frozenset):
    """A plan in which every operation is lowered: nothing but leaves, decisions and taps is sent."""

    def __new__(cls) -> "_Everything":
        return super().__new__(cls)

    def __contains__(self, name: object) -> bool:
        return True


def record(function) -> Interpreter:
    return Interpreter(dump.record(function))


def test_in_place_write_through_overlapping_views() -> None:
    base = torch.arange(24.0).view(4, 6)

    def program():
        left, whole = base[:, :4], base.view(-1)
        left.mul_(2)
        whole[3:9].add_(1)
        base.t()[2].zero_()
        return {"left": left * 1, "whole": whole.clone(), "column": base[:, 2]}

    expected = base.clone()
    expected[:, :4] *= 2
    expected.view(-1)[3:9] += 1
    expected[:, 2] = 0
    assert torch.equal(record(program).taps["whole"], expected.view(-1).double())


def test_out_arguments_and_empty() -> None:
    a, b = torch.randn(5, 7), torch.randn(5, 7)

    def program():
        out = torch.empty(5, 7)
        torch.add(a, b, out=out)
        grown = torch.empty(0)
        torch.mul(out, 2, out=grown)
        halves = torch.empty(10)
        halves[:5].fill_(1)
        halves[5:].copy_(a[:, 0])
        rows = torch.empty(2, 5, 7)
        torch.sub(a, b, out=rows[1])
        rows[0].zero_()
        return {"out": out, "grown": grown, "halves": halves, "rows": rows}

    interpreter = record(program)
    assert torch.equal(interpreter.taps["grown"], ((a + b) * 2).double())
    assert torch.equal(interpreter.taps["rows"][1], (a - b).double())


def test_foreach_lists_into_one_flat_buffer() -> None:
    flat, other = torch.randn(12), torch.randn(12)

    def program():
        parts = list(flat.split(4))
        torch._foreach_mul_(parts, 3.0)
        torch._foreach_add_(parts, list(other.split(4)), alpha=0.5)
        torch._foreach_copy_(parts[:1], [other[:4]])
        norms = torch._foreach_norm(parts)
        return {"flat": flat, "norms": torch.stack(norms)}

    assert "flat" in record(program).taps


def test_stolen_and_accumulated_gradients() -> None:
    weight = torch.nn.Parameter(torch.randn(4, 4))

    def program():
        weight.grad = None
        (weight * 2).sum().backward()
        stolen = weight.grad.clone()
        (weight * weight).sum().backward()
        return {"stolen": stolen, "accumulated": weight.grad}

    interpreter = record(program)
    assert torch.equal(interpreter.taps["stolen"], torch.full((4, 4), 2.0).double())


def test_gradient_taps_come_before_clipping() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    seen = {}

    def program():
        (model(torch.ones(5, 3)).square().sum() * 100).backward()
        seen["grad"] = model.weight.grad.clone()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()

    interpreter = Interpreter(dump.record(program, [model], [optimizer]))
    assert torch.equal(interpreter.taps["grad:weight"], seen["grad"].double())


def test_python_scalars_are_edges() -> None:
    x = torch.randn(16)

    def program():
        norm = x.norm().item()
        count = int((x > 0).sum().item()) + 0
        return {"y": x / norm, "z": x * 3.0, "count": x.sum() / float(count)}

    messages = dump.record(program)
    from plumbline.v1 import audit_pb2

    ops = [audit_pb2.AuditRequest.FromString(m).op for m in messages if m[0] == 0x2A]
    edges = [op.name for op in ops for argument in op.arguments if argument.WhichOneof("value") == "scalar"]
    assert edges == ["aten::div.Tensor"]
    reads = [op.arguments[1] for op in ops if op.name == "aten::_local_scalar_dense.default"]
    assert [read.WhichOneof("value") for read in reads] == ["real", "integer"]
    Interpreter(messages)


def test_a_part_of_data_tells_its_line_once() -> None:
    x, weight = torch.randn(6, 4), torch.randn(4, 2, requires_grad=True)

    def program():
        rows = x[:-1]
        never_read = x[2:]  # noqa: F841
        left, right = x.split(3)
        h = rows @ weight
        return {"y": h[:3], "again": rows * 2, "left": left + right}

    messages = dump.record(program)
    from plumbline.v1 import audit_pb2

    ops = [audit_pb2.AuditRequest.FromString(m).op for m in messages if m[0] == 0x2A]
    parts = [op for op in ops if op.name == "plumbline::slice.default"]
    line = program.__code__.co_firstlineno + 1
    assert [(op.source.rpartition(":")[2], op.arguments[1].text) for op in parts] == [(str(line), "aten::slice.Tensor")]
    assert list(parts[0].arguments[0].tensor.sizes) == [5, 4]
    Interpreter(messages)


def test_dtype_views_addresses_that_recur_and_large_data_sets() -> None:
    data = torch.randn(1 << 19)

    def program():
        total = torch.zeros(())
        for index in range(200):  # Each iteration's temporaries die, and their addresses recur.
            total = total + (torch.ones(64) * index).sum()
        raw = torch.arange(8, dtype=torch.int32).view(torch.float32)
        batch = torch.stack([data[i * 100 : i * 100 + 50] for i in range(4)])
        return {"total": total, "raw": raw * 1, "batch": batch * 2}

    interpreter = record(program)
    assert interpreter.taps["total"].item() == sum(64 * index for index in range(200))
    assert max(leaf.count for leaf in interpreter.leaves) < 1000
    data_written = torch.randn(1 << 19)

    def writer():
        part = data_written[10:20] * 2
        data_written[5:15].add_(1)
        return {"part": part, "again": data_written[10:20] * 2}

    assert "again" in record(writer).taps


def test_random_draws_are_named_leaves() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))

    def program():
        noise = torch.empty(3, 8)
        noise[:, :4].normal_()
        noise[:, 4:].uniform_()
        return {"y": model(torch.randn(3, 4)) + noise[:, :4], "noise": noise, "order": torch.randperm(5)}

    messages = dump.record(program, [model])
    names = {leaf.name for leaf in Interpreter(messages).leaves if leaf.role == 5}
    assert names == {"#0", "#1", "#2", "1#0", "#3"}


def test_inference_mode_and_optional_tensors() -> None:
    norm, x = torch.nn.LayerNorm(6), torch.randn(4, 6)

    def program():
        with torch.inference_mode():
            y = torch.nn.functional.linear(x, norm.weight.view(1, 6))
            z = norm(x)[[0, 2]]
        return {"y": y * 1, "z": z.clone()}

    assert set(record(program).taps) == {"y", "z"}


def test_interpreter_sees_a_missed_write() -> None:
    """The test's own teeth: a write below dispatch must not pass."""
    x = torch.zeros(4)

    def program():
        y = x + 1
        ctypes.memset(y.data_ptr(), 1, 4)
        return {"y": y * 2}

    with pytest.raises(Mismatch):
        record(program)
