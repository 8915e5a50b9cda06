"""Traces of TYPE_II verdicts: kept, exported, audited again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from query_support import run_plumb, send, type_i, type_ii
from stream_client import Client, StepFrames, data, floats, leaf
from stream_daemon import DaemonProcess

from plumbline.v1 import trace_pb2


def judged(line: str) -> dict:
    """A verdict in JSON without what differs from one audit of it to the next."""
    verdict = json.loads(line)
    for name in ("time", "audit_seconds", "trace"):
        verdict.pop(name, None)
    return verdict


def same_again(first: DaemonProcess, identity: str, again: DaemonProcess, named: str) -> None:
    explained = run_plumb(first, "explain", identity, "--json")
    replayed = run_plumb(again, "replay", named, "--json")
    assert (explained.returncode, replayed.returncode) == (2, 2), explained.stderr + replayed.stderr
    assert judged(replayed.stdout) == judged(explained.stdout)


def error(daemon: DaemonProcess, *arguments: str) -> str:
    ran = run_plumb(daemon, *arguments)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1), ran
    return ran.stderr


@pytest.fixture
def identity(client: Client, run: str) -> str:
    """A verdict that is TYPE_II, after one that is not."""
    send(client.stream(run), type_i(0), type_ii(1))
    return f"default/job/{run}/0/1"


def test_a_kept_trace_is_judged_alike(shared_daemon: DaemonProcess, identity: str) -> None:
    same_again(shared_daemon, identity, shared_daemon, identity)
    text = run_plumb(shared_daemon, "explain", identity).stdout
    assert f"trace       kept: plumb replay {identity}" in text
    replayed = run_plumb(shared_daemon, "replay", identity, "--profile", "pytorch-cpu")
    assert replayed.returncode == 2
    assert replayed.stdout.splitlines()[:2] == text.splitlines()[:2]
    assert "profile     pytorch-cpu" in replayed.stdout


def test_an_exported_trace_is_judged_alike_elsewhere(
    shared_daemon: DaemonProcess, new_daemon: Callable[..., DaemonProcess], identity: str, tmp_path: Path
) -> None:
    file = tmp_path / "step.trace"
    exported = run_plumb(shared_daemon, "export-trace", identity, str(file))
    assert (exported.returncode, exported.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["step.trace"]
    same_again(shared_daemon, identity, new_daemon(), str(file))


def test_a_pair_is_judged_alike_without_the_reference(client: Client, shared_daemon: DaemonProcess, run: str) -> None:
    """The reference's step goes along with the target's."""
    reference = client.stream(f"{run}-reference", reference=True)
    send(reference, type_i(0))
    doubled = StepFrames(0, y=(3.0, 6.0))
    doubled.op.op.arguments[2].integer = 2  # x + 2 x.
    (verdict,) = send(client.stream(run, reference_run=f"{run}-reference"), doubled)
    assert verdict.reference == f"run {run}-reference step 0"
    assert verdict.sentence.startswith("Target and reference compute different mathematics")
    for file in (shared_daemon.directory / "data" / "traces").rglob(f"r_{run}-reference/0/0.trace"):
        file.unlink()
    same_again(shared_daemon, verdict.id, shared_daemon, verdict.id)


def test_invariants_are_judged_alike(client: Client, shared_daemon: DaemonProcess, run: str) -> None:
    """What the step before left goes along with the step."""

    def state(step: int, before: tuple[float, ...], after: tuple[float, ...]) -> StepFrames:
        frames = StepFrames(step, before, after)
        frames.leaf.leaf.role, frames.leaf.leaf.name = trace_pb2.Leaf.STATE, "state:w"
        frames.tap.tap.name, frames.tap.tap.kind = "state:w", trace_pb2.Tap.STATE
        return frames

    _, verdict = send(client.stream(run), state(0, (1.0, 2.0), (2.0, 4.0)), state(1, (2.0, 5.0), (4.0, 10.0)))
    assert "outside of the trace" in verdict.sentence
    same_again(shared_daemon, verdict.id, shared_daemon, verdict.id)


def test_kept_over_a_restart_and_evicted_in_the_end(new_daemon: Callable[..., DaemonProcess], run: str) -> None:
    daemon = new_daemon("--trace-quota=8KiB")
    client = Client(daemon.address)
    stream = client.stream(run)
    send(stream, type_ii(0))
    first = f"default/job/{run}/0/0"
    stream.close()
    client.close()
    daemon.kill()
    daemon.start()
    same_again(daemon, first, daemon, first)
    client = Client(daemon.address)
    big = type_ii(2)
    big.extra = [leaf(9, 1024, 9), *data(9, bytes(4096))]
    *_, verdict = send(client.stream(run), type_ii(1), big)
    assert any("could not be kept" in note and "--trace-quota" in note for note in verdict.notes)
    client.close()
    assert "trace       evicted (--trace-quota)" in run_plumb(daemon, "explain", first).stdout
    assert "was evicted (--trace-quota)" in error(daemon, "replay", first)
    assert "was evicted (--trace-quota)" in error(daemon, "export-trace", first, "unwritten")
    assert not Path("unwritten").exists() and not Path("unwritten.part").exists()


def test_a_dump_is_replayed(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    frames = StepFrames(0, x=(0.5, 0.25))
    file = tmp_path / "dump"
    messages = [each.SerializeToString() for each in frames.frames()]
    assert max(map(len, messages)) < 128
    file.write_bytes(b"".join(bytes((len(each),)) + each for each in messages))
    assert run_plumb(shared_daemon, "replay", str(file)).returncode == 0


def test_a_long_file_goes_over_in_chunks(
    shared_daemon: DaemonProcess, client: Client, run: str, tmp_path: Path
) -> None:
    step = type_ii(0)
    count = 700_000
    step.extra = [leaf(9, count, 9), *data(9, floats(*range(count)))]
    (verdict,) = send(client.stream(run), step)
    assert any("--trace-quota" in note for note in verdict.notes)  # Half of 2 MiB: see the shared daemon.
    file = tmp_path / "dump"
    with file.open("wb") as out:
        for each in step.frames():
            message = each.SerializeToString()
            size = len(message)
            while size > 127:
                out.write(bytes((size & 127 | 128,)))
                size >>= 7
            out.write(bytes((size,)) + message)
    assert run_plumb(shared_daemon, "replay", str(file)).returncode == 2
    with file.open("ab") as out:
        out.write(bytes(20 << 20))
    assert "--memory-limit" in error(shared_daemon, "replay", str(file))


def test_what_is_no_trace(shared_daemon: DaemonProcess, identity: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    run_plumb(shared_daemon, "export-trace", identity, str(file))
    whole = file.read_bytes()
    for content, expected in (
        (b"", "expected a trace"),
        (b"epoch,loss\n1,0.5\n", "expected a trace"),
        (whole[:-9], "cut short"),
        (whole[:100] + b"?" + whole[101:], "checksum"),
        (b"PLTRACE3" + whole[8:], "version 3; this daemon reads version 2"),
    ):
        file.write_bytes(content)
        assert expected in error(shared_daemon, "replay", str(file)), content[:20]


def test_what_is_not_there(shared_daemon: DaemonProcess, identity: str, tmp_path: Path) -> None:
    assert "neither a file nor the id" in error(shared_daemon, "replay", str(tmp_path / "nothing"))
    assert "NOT_FOUND" in error(shared_daemon, "replay", identity[:-1] + "7")
    not_kept = error(shared_daemon, "replay", identity[:-1] + "0")
    assert "no trace was kept" in not_kept and "TYPE_I:" in not_kept
    assert "profile: expected one of" in error(shared_daemon, "replay", identity, "--profile", "abacus")
    assert "cannot write to" in error(shared_daemon, "export-trace", identity, str(tmp_path / "none" / "file"))
    for words in (["replay"], ["replay", identity, identity], ["export-trace", identity]):
        assert f"{words[0]}: expected" in error(shared_daemon, *words)
