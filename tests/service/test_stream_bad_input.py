"""Bad input, one test for each kind: a step that is wrong fails alone, with the field, what was expected and found."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable

import grpc
import pytest
from google.rpc import code_pb2
from stream_client import Client, StepFrames, Stream, data, floats, frame, leaf, tensor, violations
from stream_daemon import DaemonProcess, binary

from plumbline.v1 import audit_pb2, trace_pb2, verdict_pb2


def refused(stream: Stream, step: StepFrames, code: int = code_pb2.INVALID_ARGUMENT) -> list[tuple[str, str]]:
    """Sends a step that must be refused and the next one, which must be audited. Returns the violations."""
    stream.send(*step.frames())
    error = stream.next("error")
    assert error.step == step.step
    assert error.status.code == code, error
    stream.send(*StepFrames(step.step + 1).frames())
    verdict = stream.next("verdict")
    assert verdict.step == step.step + 1
    assert verdict.verdict == verdict_pb2.OUTCOME_TYPE_I, verdict
    return violations(error.status)


def field(stream: Stream, step: StepFrames, code: int = code_pb2.INVALID_ARGUMENT) -> tuple[str, str]:
    found = refused(stream, step, code)
    assert len(found) == 1
    return found[0]


def test_a_whole_step_is_audited(client: Client, run: str) -> None:
    stream = client.stream(run)
    stream.send(*StepFrames(0).frames())
    verdict = stream.next("verdict")
    assert (verdict.id, verdict.verdict) == (f"default/job/{run}/0/0", verdict_pb2.OUTCOME_TYPE_I)
    assert verdict.coverage.operations == 1 and verdict.coverage.opaque == 0
    stream.durable(0)
    assert stream.close() == grpc.StatusCode.OK


def test_a_wrong_result_is_confirmed_with_outputs(client: Client, run: str) -> None:
    stream = client.stream(run)
    stream.send(*StepFrames(0, y=(2.0, 4.5)).frames())
    assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_INCONCLUSIVE
    assert stream.next("control").outputs_next
    step = StepFrames(1, y=(2.0, 4.5))
    step.outputs = True
    step.op.op.results[0].observed = 2
    stream.send(*step.frames())
    verdict = stream.next("verdict")
    assert (verdict.verdict, verdict.cause) == (verdict_pb2.OUTCOME_TYPE_II, verdict_pb2.CAUSE_EXECUTION)
    assert verdict.suspect.op == "aten::add.Tensor" and verdict.suspect.source == "train.py:7"


def test_stream_ends_in_the_middle_of_a_tensor(client: Client, run: str) -> None:
    stream = client.stream(run)
    step = StepFrames(0)
    stream.send(step.begin(), step.leaf, frame(data=trace_pb2.TensorData(payload=1, total=8, data=b"1234")))
    assert stream.close() == grpc.StatusCode.INVALID_ARGUMENT
    ((name, description),) = stream.violations()
    assert name == "data.payload" and "middle of a tensor" in description
    again = client.stream(run)  # The step was not taken: it is sent again, whole.
    again.send(*step.frames())
    assert again.next("verdict").step == 0


def test_stream_ends_in_the_middle_of_a_step(client: Client, run: str) -> None:
    stream = client.stream(run)
    stream.send(*StepFrames(0).frames()[:-1])
    assert stream.close() == grpc.StatusCode.INVALID_ARGUMENT
    ((name, description),) = stream.violations()
    assert name == "step_end" and "middle of the step" in description


def test_step_ends_in_the_middle_of_a_tensor(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.data[0].data.total = 16
    name, description = field(client.stream(run), step)
    assert name == "data.payload" and "expected 16 bytes" in description and "found 8 bytes" in description


def test_unknown_tensor(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.op.op.arguments[1].tensor.value = 77
    name, description = field(client.stream(run), step)
    assert name == "op.arguments[1].tensor.value"
    assert "value 77" in description and "unknown" in description and "aten::add.Tensor" in description


def test_unknown_tensor_of_a_tap(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.tap.tap.terms[0].tensor.value = 78
    name, description = field(client.stream(run), step)
    assert name == "tap.terms[0].tensor.value" and "value 78" in description


def test_tensor_twice(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.op.op.results[0].tensor.value = 1
    name, description = field(client.stream(run), step)
    assert name == "op.results[0].tensor.value" and "fresh" in description and "value 1" in description


def test_leaf_twice(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.extra.append(step.leaf)
    name, _ = field(client.stream(run), step)
    assert name == "leaf.value"


def test_wrong_byte_count_for_a_leaf(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.data = [*data(1, floats(1, 2, 3)), *data(2, floats(2, 4))]
    name, description = field(client.stream(run), step)
    assert name == "leaf.payload" and "expected 8 bytes" in description and "found 12 bytes" in description


def test_wrong_byte_count_for_a_tap(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.data = [*data(1, floats(1, 2)), *data(2, floats(2))]
    name, description = field(client.stream(run), step)
    assert name == "tap.terms[0].observed" and "found 4 bytes" in description


def test_payload_that_never_came(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.data = data(1, floats(1, 2))
    name, description = field(client.stream(run), step)
    assert name == "tap.terms[0].observed" and "no data" in description


@pytest.mark.parametrize(
    ("sizes", "strides", "name"),
    [
        ([-2], [1], "op.results[0].tensor.sizes[0]"),
        ([2, -1], [1, 1], "op.results[0].tensor.sizes[1]"),
        ([1 << 41], [1], "op.results[0].tensor.sizes"),
        ([1 << 32, 1 << 32], [1, 1], "op.results[0].tensor.sizes"),
        ([1 << 62, 4, 4], [0, 0, 0], "op.results[0].tensor.sizes"),
        ([2], [(1 << 63) - 1], "op.results[0].tensor"),
        ([3, 3], [(1 << 62), (1 << 62)], "op.results[0].tensor.strides"),
        ([2], [-1], "op.results[0].tensor.strides[0]"),
        ([2], [], "op.results[0].tensor.strides"),
        ([1] * 17, [1] * 17, "op.results[0].tensor.sizes"),
    ],
)
def test_shapes_that_are_negative_huge_or_overflow(
    client: Client, run: str, sizes: list[int], strides: list[int], name: str
) -> None:
    step = StepFrames(0)
    step.op.op.results[0].tensor.CopyFrom(
        trace_pb2.Tensor(value=2, dtype=trace_pb2.DTYPE_FLOAT32, sizes=sizes, strides=strides)
    )
    found, _ = field(client.stream(run), step)
    assert found == name


def test_huge_expanded_shape_is_refused_before_memory_is_taken(client: Client, run: str) -> None:
    step = StepFrames(0)
    huge = trace_pb2.Tensor(value=1, dtype=trace_pb2.DTYPE_FLOAT32, sizes=[1 << 39], strides=[0])
    step.op.op.arguments[0].tensor.CopyFrom(huge)
    name, description = field(client.stream(run), step, code_pb2.RESOURCE_EXHAUSTED)
    assert name == "op.arguments[0].tensor.sizes" and "--memory-limit" in description


def test_negative_count_of_a_leaf(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.leaf.leaf.count = -1
    name, description = field(client.stream(run), step)
    assert name == "leaf.count" and "found -1" in description


def test_window_outside_of_its_value(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.op.op.arguments[0].tensor.offset = 1
    name, description = field(client.stream(run), step)
    assert name == "op.arguments[0].tensor" and "last element 2" in description


def test_unknown_format(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.leaf.leaf.dtype = 99
    name, description = field(client.stream(run), step)
    assert name == "leaf.dtype" and "unknown format 99" in description


def test_cycle(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.op.op.arguments[0].tensor.value = 2  # Its own result.
    name, description = field(client.stream(run), step)
    assert name == "op.arguments[0].tensor.value" and "value 2" in description


def test_cycle_of_two_operations(client: Client, run: str) -> None:
    step = StepFrames(0)
    later = trace_pb2.Op(name="aten::neg.default")
    later.arguments.add(name="self", tensor=tensor(2, [2]))
    later.results.add(tensor=tensor(3, [2]), count=2)
    step.op.op.arguments[0].tensor.value = 3
    step.extra.append(frame(op=later))
    name, description = field(client.stream(run), step)
    assert name == "op.arguments[0].tensor.value" and "value 3" in description


@pytest.mark.parametrize("x", [(math.nan, 1.0), (math.inf, 1.0), (-math.inf, math.inf), (3e38, 1.0)])
def test_leaves_and_taps_that_are_not_finite(client: Client, run: str, x: tuple[float, float]) -> None:
    stream = client.stream(run)
    y = tuple(math.inf if 2 * each > 3.4028235e38 else 2 * each for each in x)
    stream.send(*StepFrames(0, x=x, y=y).frames())
    verdict = stream.next("verdict")
    assert verdict.verdict in (verdict_pb2.OUTCOME_TYPE_I, verdict_pb2.OUTCOME_INCONCLUSIVE), verdict


def test_tap_that_alone_is_not_finite(client: Client, run: str) -> None:
    stream = client.stream(run)
    stream.send(*StepFrames(0, y=(math.nan, 4.0)).frames())
    assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_TYPE_II


def test_step_over_the_memory_limit(client: Client, run: str) -> None:
    job = client.open(run)
    assert job.plan.step_bytes_max == 8 << 20  # An eighth of --memory-limit=64MiB.
    stream = Stream(client.channel, job)
    count = 3 << 20
    step = StepFrames(0)
    step.extra = [leaf(9, count, 9), *data(9, bytes(4 * count))]
    name, description = field(stream, step, code_pb2.RESOURCE_EXHAUSTED)
    assert name == "data.total" and "--memory-limit" in description


def test_step_of_many_payloads_over_the_memory_limit(client: Client, run: str) -> None:
    step = StepFrames(0)
    for number in range(9):
        step.extra += [leaf(10 + number, 1 << 18, 10 + number), *data(10 + number, bytes(1 << 20))]
    name, description = field(client.stream(run), step, code_pb2.RESOURCE_EXHAUSTED)
    assert "--memory-limit" in description, name


def test_audit_over_the_memory_limit(client: Client, run: str) -> None:
    step = StepFrames(0)
    for number in range(200):
        big = trace_pb2.Op(name="aten::neg.default")
        big.arguments.add(name="self", tensor=trace_pb2.Tensor(value=1, dtype=2, sizes=[1 << 18], strides=[0]))
        big.results.add(tensor=tensor(100 + number, [1 << 18]), count=1 << 18)
        step.extra.append(frame(op=big))
    name, description = field(client.stream(run), step, code_pb2.RESOURCE_EXHAUSTED)
    assert name == "step" and "--memory-limit" in description


def test_second_stream_for_the_same_identity(client: Client, run: str) -> None:
    first = client.stream(run)
    first.send(*StepFrames(0).frames())
    assert first.next("verdict").step == 0
    second = client.stream(run)
    assert second.end() == grpc.StatusCode.ALREADY_EXISTS
    ((name, description),) = second.violations()
    assert name == "open.handle" and run in description
    first.send(*StepFrames(1).frames())
    assert first.next("verdict").step == 1
    assert first.close() == grpc.StatusCode.OK
    assert client.stream(run).close() == grpc.StatusCode.OK  # Given back.


def test_other_ranks_have_streams_of_their_own(client: Client, run: str) -> None:
    streams = [client.stream(run, rank=rank) for rank in range(2)]
    for rank, stream in enumerate(streams):
        stream.send(*StepFrames(0).frames())
        assert stream.next("verdict").rank == rank


def test_reference_run_that_does_not_exist(client: Client, run: str) -> None:
    stream = client.stream(run, reference_run="nobody")
    stream.send(*StepFrames(0).frames())
    verdict = stream.next("verdict")
    assert (verdict.verdict, verdict.cause) == (verdict_pb2.OUTCOME_INCONCLUSIVE, verdict_pb2.CAUSE_REFERENCE_MISSING)
    assert any("never existed" in note for note in verdict.notes)


def test_reference_run_that_is_late(client: Client, run: str) -> None:
    stream = client.stream(run, reference_run=f"{run}-reference")
    reference = client.stream(f"{run}-reference", reference=True)
    stream.send(*StepFrames(0).frames())
    verdict = stream.next("verdict")
    assert (verdict.verdict, verdict.cause) == (verdict_pb2.OUTCOME_INCONCLUSIVE, verdict_pb2.CAUSE_REFERENCE_MISSING)
    assert any("did not arrive" in note for note in verdict.notes)
    for step in range(2):  # When it is there after all, the next step is compared.
        reference.send(*StepFrames(step).frames())
        assert reference.next("verdict").step == step
    stream.send(*StepFrames(1).frames())
    assert stream.next("verdict").verdict == verdict_pb2.OUTCOME_TYPE_I


def test_reference_run_that_was_evicted(client: Client, run: str) -> None:
    reference = client.stream(f"{run}-reference", reference=True)
    for step in range(3):  # Each larger than half of what --trace-quota=2MiB leaves them.
        big = StepFrames(step)
        big.extra = [leaf(9, 150_000, 9), *data(9, bytes(600_000))]
        reference.send(*big.frames())
        assert reference.next("verdict").step == step
    stream = client.stream(run, reference_run=f"{run}-reference")
    stream.send(*StepFrames(0).frames())
    verdict = stream.next("verdict")
    assert (verdict.verdict, verdict.cause) == (verdict_pb2.OUTCOME_INCONCLUSIVE, verdict_pb2.CAUSE_REFERENCE_MISSING)
    assert any("evicted" in note for note in verdict.notes)


def test_reference_run_that_is_the_run_itself(client: Client, run: str) -> None:
    for name in (run, f"job/{run}"):
        with pytest.raises(grpc.RpcError) as caught:
            client.open(run, reference_run=name)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "reference_run" in caught.value.details()


def test_reference_for_an_unknown_tap(client: Client, run: str) -> None:
    step = StepFrames(0)
    unknown = trace_pb2.Tap(
        name="nothing", kind=trace_pb2.Tap.VALUE, reference=9, reference_dtype=trace_pb2.DTYPE_FLOAT32
    )
    step.extra = [frame(tap=unknown), *data(9, floats(1))]
    name, description = field(client.stream(run), step)
    assert name == "tap.reference" and 'unknown tap "nothing"' in description


def test_reference_of_another_shape(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.tap.tap.reference, step.tap.tap.reference_dtype = 9, trace_pb2.DTYPE_FLOAT64
    step.extra = data(9, floats(1, 2))
    name, description = field(client.stream(run), step)
    assert name == "tap.reference" and "expected 16 bytes" in description


def test_guard_on_an_unknown_tap(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.extra = [frame(tap=trace_pb2.Tap(name="lr", kind=trace_pb2.Tap.VALUE, minimum=0))]
    name, description = field(client.stream(run), step)
    assert name == "tap.minimum" and 'guard on the unknown tap "lr"' in description


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"minimum": math.nan}, "tap.minimum: a finite number"),
        ({"maximum": -math.inf}, "tap.maximum: a finite number"),
        ({"minimum": 2, "maximum": 1}, "tap.minimum: at most the maximum, 1"),
    ],
)
def test_guard_that_nothing_can_keep(client: Client, run: str, limits: dict[str, float], expected: str) -> None:
    step = StepFrames(0)
    for key, limit in limits.items():
        setattr(step.tap.tap, key, limit)
    name, description = field(client.stream(run), step)
    wanted_name, wanted = expected.split(": ")
    assert name == wanted_name and wanted in description and "found" in description


def test_tap_name_twice(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.extra = [step.tap]
    name, _ = field(client.stream(run), step)
    assert name == "tap.name"


def test_frames_lost(client: Client, run: str) -> None:
    stream = client.stream(run)
    frames = StepFrames(0).frames()
    frames[-1].step_end.frames += 1
    stream.send(*frames)
    ((name, _),) = violations(stream.next("error").status)
    assert name == "step_end.frames"


def test_chunks_out_of_order(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.data[0].data.offset = 4
    name, description = field(client.stream(run), step)
    assert name == "data.offset" and "found 4" in description


def test_chunk_larger_than_a_mebibyte(client: Client, run: str) -> None:
    step = StepFrames(0)
    step.extra = [frame(data=trace_pb2.TensorData(payload=9, total=(1 << 20) + 1, data=bytes((1 << 20) + 1)))]
    name, _ = field(client.stream(run), step)
    assert name == "data.data"


@pytest.mark.parametrize(
    "frames",
    [
        [frame(op=trace_pb2.Op(name="aten::neg.default"))],
        [frame(step_end=audit_pb2.StepEnd(frames=1))],
        [StepFrames(0).begin(), StepFrames(1).begin()],
        [frame(open=audit_pb2.Open(handle="again"))],
    ],
    ids=["operation outside", "end outside", "begin in a step", "open twice"],
)
def test_frames_out_of_order_end_the_stream(client: Client, run: str, frames: list[audit_pb2.AuditRequest]) -> None:
    stream = client.stream(run)
    stream.send(*frames)
    assert stream.end() == grpc.StatusCode.FAILED_PRECONDITION
    assert len(stream.violations()) == 1


def batch(*frames: audit_pb2.AuditRequest) -> audit_pb2.AuditRequest:
    return frame(batch=audit_pb2.Batch(frames=frames))


def test_frames_in_batches_are_a_step_like_any(client: Client, run: str) -> None:
    stream = client.stream(run)
    first, second = StepFrames(0).frames(), StepFrames(1).frames()
    stream.send(batch(*first[:3]), first[3], batch(*first[4:]))
    assert stream.next("verdict").step == 0
    stream.send(batch(*second))
    verdict = stream.next("verdict")
    assert (verdict.step, verdict.verdict) == (1, verdict_pb2.OUTCOME_TYPE_I)


def test_what_is_wrong_in_a_batch_harms_its_step_alone(client: Client, run: str) -> None:
    stream = client.stream(run)
    wrong = StepFrames(0)
    wrong.leaf.leaf.count = -1
    stream.send(batch(*wrong.frames()))
    assert stream.next("error").step == 0
    stream.send(batch(*StepFrames(1).frames()))
    assert stream.next("verdict").step == 1


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        ([batch(*StepFrames(0).frames())], "batch.frames"),
        ([frame(open=audit_pb2.Open(handle="again"))], "batch.frames"),
        ([frame(pace=audit_pb2.Pace(step=1))], "batch.frames"),
        ([*StepFrames(0).frames(), StepFrames(1).begin()], "batch.frames"),
        ([StepFrames(0).begin(), *data(1, bytes(300 << 10))], "batch"),
    ],
    ids=["a batch", "open", "pace", "behind the step's end", "too many bytes"],
)
def test_batches_that_are_none_end_the_stream(client: Client, run: str, frames: list, name: str) -> None:
    stream = client.stream(run)
    stream.send(batch(*frames))
    assert stream.end() == grpc.StatusCode.INVALID_ARGUMENT
    assert [field for field, _ in stream.violations()] == [name]


def test_first_frame_is_not_open(client: Client) -> None:
    stream = Stream(client.channel, None)
    stream.send(StepFrames(0).begin())
    assert stream.end() == grpc.StatusCode.FAILED_PRECONDITION


def test_unknown_handle(client: Client) -> None:
    stream = Stream(client.channel, audit_pb2.Job(handle="nobody's"))
    assert stream.end() == grpc.StatusCode.NOT_FOUND


def test_message_that_is_no_message(client: Client, run: str) -> None:
    stream = client.stream(run)
    stream.send_raw(b"\xff\xff\xff\xff")
    assert stream.end() == grpc.StatusCode.INVALID_ARGUMENT


def test_client_that_ignores_its_credit_is_slowed(client: Client, run: str) -> None:
    stream = client.stream(run)
    step = StepFrames(0)
    stream.send(step.begin())
    for chunk in data(9, bytes(40 << 20)):
        stream.send_without_credit(chunk.SerializeToString())
    ((name, _),) = violations(stream.next("error").status)
    assert name == "data.total"
    stream.send_without_credit(frame(step_end=audit_pb2.StepEnd(frames=42)).SerializeToString())
    for each in StepFrames(1).frames():
        stream.send_without_credit(each.SerializeToString())
    assert stream.next("verdict").step == 1


def test_compressed_messages_are_refused(client: Client, run: str) -> None:
    stream = Stream(client.channel, client.open(run), compression=grpc.Compression.Gzip)
    step = StepFrames(0)
    step.extra = data(9, bytes(1 << 20))
    for each in step.frames():
        stream.send_without_credit(each.SerializeToString())
    assert stream.end() == grpc.StatusCode.UNIMPLEMENTED


def test_client_of_a_newer_minor_version(client: Client, run: str) -> None:
    def newer(message: bytes) -> bytes:
        return message + b"\xfa\x3e\x05hello"  # Field 1007, which no version has yet.

    step = StepFrames(0)
    step.op.op.MergeFromString(b"\xf8\x3e\x2a")
    step.leaf.leaf.MergeFromString(b"\xf8\x3e\x2a")
    step.tap.tap.terms[0].tensor.MergeFromString(b"\xf8\x3e\x2a")
    stream = Stream(client.channel, None)
    stream.send_raw(newer(frame(open=audit_pb2.Open(handle=client.open(run).handle)).SerializeToString()))
    frames = step.frames()
    frames.insert(1, audit_pb2.AuditRequest.FromString(newer(b"")))  # A kind of frame that is not known here.
    frames[-1].step_end.frames += 1
    for each in frames:
        stream.send_raw(newer(each.SerializeToString()))
    verdict = stream.next("verdict")
    assert verdict.verdict == verdict_pb2.OUTCOME_TYPE_I
    assert stream.close() == grpc.StatusCode.OK


def test_unknown_profile(client: Client, run: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.open(run, profile="abacus")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert "abacus" in caught.value.details() and "ieee" in caught.value.details()


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 129, "\N{SNOWMAN}"])
def test_identity_that_is_no_name(client: Client, name: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.open(name)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "identity.run" in caught.value.details()


def test_dots_are_names_and_not_paths(client: Client, shared_daemon: DaemonProcess) -> None:
    stream = client.stream("..", job="..", reference=True)
    stream.send(*StepFrames(0).frames())
    assert stream.next("verdict").step == 0
    assert not list(shared_daemon.directory.glob("*.trace"))
    assert (shared_daemon.directory / "data/traces/p_default/j_../r_../0/0.trace").exists()


def test_data_directory_that_cannot_be_written(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon()  # Only for its directory.
    blocked = daemon.directory / "file"
    blocked.write_text("not a directory")
    command = [binary(), f"--data-dir={blocked}/data", f"--listen=unix:{daemon.directory}/other.sock"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"plumblined: --data-dir: cannot create {blocked}/data")
    assert len(ended.stderr.splitlines()) == 1


def test_step_again_with_another_digest(client: Client, run: str) -> None:
    stream = client.stream(run)
    stream.send(*StepFrames(0).frames())
    first = stream.next("verdict")
    stream.send(*StepFrames(0, x=(1.0, 3.0)).frames())
    error = stream.next("error")
    assert error.status.code == code_pb2.ALREADY_EXISTS and first.digest in error.status.message


def test_step_that_goes_back(client: Client, run: str) -> None:
    stream = client.stream(run)
    stream.send(*StepFrames(7).frames())
    stream.next("verdict")
    stream.send(*StepFrames(3).frames())
    error = stream.next("error")
    assert error.status.code == code_pb2.INVALID_ARGUMENT
    assert violations(error.status)[0][0] == "step_begin.step"


def test_negative_step(client: Client, run: str) -> None:
    stream = client.stream(run)
    stream.send(*StepFrames(-5).frames())
    assert violations(stream.next("error").status)[0][0] == "step_begin.step"


@pytest.mark.parametrize("trace_id", ["0" * 32, "a" * 31, "a" * 33, "A" * 32, "a" * 31 + "\n", "g" * 32])
def test_trace_id_that_is_none(client: Client, run: str, trace_id: str) -> None:
    stream = client.stream(run)
    wrong = StepFrames(0)
    wrong.trace_id = trace_id
    stream.send(*wrong.frames())
    ((field, description),) = violations(stream.next("error").status)
    assert field == "step_begin.trace_id" and "expected 32 lowercase hexadecimal digits" in description
    stream.send(*StepFrames(1).frames())
    assert stream.next("verdict").trace_id == ""
