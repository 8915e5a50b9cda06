"""Makes the seeds of the fuzz targets from real data: captured steps, a daemon's files, what is shipped.

    PLUMBLINE_BUILD=build/release .venv/bin/python tests/fuzz/seeds.py      # writes tests/fuzz/corpus/NAME/seed-*

What fuzzers found lies beside them, under other names, and stays."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
sys.path[:0] = [str(ROOT / path) for path in ("client/python", "tests/bench", "tests/service", "tests/unit/lower")]

import torch  # noqa: E402
from nodes_of_jobs import RankFrames, rank_stream  # noqa: E402
from postgres_server import PostgresServer  # noqa: E402
from query_support import run_plumb, send, type_i, type_ii  # noqa: E402
from scaleout import wait  # noqa: E402
from stream_client import Client, StepFrames, frame, tensor  # noqa: E402
from stream_daemon import DaemonProcess  # noqa: E402

from plumbline import dump  # noqa: E402
from plumbline.plan import Plan  # noqa: E402
from plumbline.v1 import archive_pb2, audit_pb2, query_pb2, query_pb2_grpc, trace_pb2, verdict_pb2  # noqa: E402

OP_BYTES_MAX = 400
OPS_TOGETHER = 4  # In one seed of formulas.


def write(target: str, name: str, content: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{re.sub(r'[^A-Za-z0-9_.]+', '-', name)}").write_bytes(content)


def varint(number: int) -> bytes:
    made = b""
    while number > 127:
        made += bytes((number & 127 | 128,))
        number >>= 7
    return made + bytes((number,))


def pieces(messages: Iterable[bytes]) -> bytes:
    """Each after its length."""
    return b"".join(varint(len(message)) + message for message in messages)


def serialized(frames: Iterable[audit_pb2.AuditRequest]) -> list[bytes]:
    return [each.SerializeToString() for each in frames]


def training(step: int = 0, wrong: bool = False) -> list[bytes]:
    """A captured step of a small model."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(5, 3)

    def run() -> None:
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 0, 1, 1]))
        (loss * 2 if wrong else loss).backward()
        optimizer.step()

    return dump.record(run, [model], [optimizer], Plan(), outputs=True, step=step)


def ranks() -> list[bytes]:
    """Two ranks' traces: half a parameter each, and a sum over both."""
    frames = []
    for rank in range(2):
        step = StepFrames(0, (1.0 + rank, 2.0))
        step.leaf.leaf.role, step.leaf.leaf.name = trace_pb2.Leaf.PARAMETER, "param:w"
        step.leaf.leaf.part.CopyFrom(trace_pb2.Part(whole=[4], start=[2 * rank], tensor=tensor(1, [2])))
        sent = trace_pb2.Op(name="plumbline::send.all_reduce", source="train.py:9")
        received = trace_pb2.Op(name="plumbline::receive.all_reduce", source="train.py:9")
        sent.arguments.add(name="input", tensor=tensor(2, [2]))
        for op in (sent, received):
            op.arguments.add(name="group").integers.values.extend([0, 1])
            for name, number in (("call", 0), ("part", 0), ("root", -1), ("tag", -1)):
                op.arguments.add(name=name, integer=number)
            op.arguments.add(name="reduction", text="sum")
        sent.results.add(tensor=tensor(3, [2]), count=2)
        received.results.add(tensor=tensor(4, [2]), count=2, observed=2)
        step.extra = [frame(op=sent), frame(op=received)]
        frames += step.frames()
    return serialized(frames)


def frames_and_traces() -> None:
    once, wrong = training(), training(wrong=True)
    small = serialized(StepFrames(0).frames())
    write("frames", "small", pieces(small))
    write("frames", "small-pair", pieces(small + serialized(StepFrames(0, y=(3.0, 5.0)).frames())))
    write("frames", "training", pieces(once))
    write("frames", "ranks", pieces(ranks()))
    header = archive_pb2.TraceHeader(profile="ieee", alpha=1e-3, reference_name="run r step 0")
    header.step.identity.CopyFrom(audit_pb2.Identity(project="p", job="j", run="r"))
    alone = header.SerializeToString()
    header.reference.CopyFrom(header.step)
    header.previous.digests.add(name="param:0.weight", digest="0" * 32)
    paired = header.SerializeToString()
    write("trace_file", "dump", b"w" + pieces(small))
    write("trace_file", "small", b"s" + pieces([alone, *small]))
    write("trace_file", "small-pair", b"s" + pieces([paired, *small, *serialized(type_ii(0).frames())]))
    write("trace_file", "training-pair", b"s" + pieces([paired, *once, *wrong]))


def shifted(op: trace_pb2.Op, by: int) -> trace_pb2.Op:
    """The operation on other values."""
    tensors = [result.tensor for result in op.results]
    for argument in op.arguments:
        tensors += [argument.tensor] if argument.HasField("tensor") else []
        tensors += [argument.scalar] if argument.HasField("scalar") else []
        tensors += argument.tensors.tensors
    for each in tensors:
        each.value += by if each.value else 0
    for result in op.results:
        result.base += by if result.base else 0
    return op


def formulas() -> None:
    """One call of each operation of the captured expressions, some together."""
    from test_against_torch import EXPRESSIONS

    ops: dict[str, trace_pb2.Op] = {}
    for expression in EXPRESSIONS.values():
        for message in dump.record(expression, plan=Plan(), outputs=True):
            each = audit_pb2.AuditRequest.FromString(message)
            if each.HasField("op") and each.ByteSize() <= OP_BYTES_MAX:
                each.op.source = each.op.module = ""
                ops.setdefault(each.op.name, each.op)
    names = sorted(ops)
    for start in range(0, len(names), OPS_TOGETHER):
        together = [shifted(ops[name], 1000 * i) for i, name in enumerate(names[start : start + OPS_TOGETHER])]
        write("formulas", names[start], pieces(op.SerializeToString() for op in together))


def stored() -> None:
    """What a daemon wrote: golden runs, verdicts."""
    daemon = DaemonProcess("--memory-limit=64MiB")
    client = Client(daemon.address)
    try:
        send(client.stream("golden", record_golden="v1"), type_i(0), type_i(1))
        file = daemon.directory / "v1.golden"
        assert run_plumb(daemon, "golden", "export", "v1", str(file)).returncode == 0
        content = file.read_bytes()
        write("golden_file", "exported", b"w" + content)
        records, at = [], 8
        while at < len(content):
            (length,) = struct.unpack_from("<I", content, at)
            records.append(content[at + 4 : at + 4 + length])
            at += 4 + length + 8
        write("golden_file", "records", b"s" + pieces(records))

        send(client.stream("run"), type_i(0), type_ii(1))
        stub = query_pb2_grpc.VerdictServiceStub(client.channel)
        numbers = struct.pack("<6q2d3q", 2, 2, 2, 1_700_000_000_000_000, 1, 0, 3.0, 0.5, 1, 2, 1)
        memory = archive_pb2.TraceHeader.Memory(step=1)
        memory.digests.add(name="param:w", digest="0" * 32)
        for step in range(2):
            whole = stub.GetVerdict(query_pb2.GetVerdictRequest(id=f"default/job/run/0/{step}"))
            detail = verdict_pb2.Verdict(taps=whole.taps, contributors=whole.contributors)
            for field in ("taps", "contributors", "alignment"):
                whole.ClearField(field)
            parts = [whole.SerializeToString(), detail.SerializeToString(), memory.SerializeToString(), numbers]
            write("stored_row", f"verdict-{step}", pieces(parts))
    finally:
        client.close()
        daemon.close()


def parts() -> None:
    """What two daemons tell each other of a step, which PostgreSQL has until it is judged."""
    history = PostgresServer()
    daemons = [DaemonProcess(f"--store={history.url}") for _ in range(2)]
    clients = [Client(daemon.address) for daemon in daemons]
    try:
        for count, calls in ((2, 2), (400, 1)):
            told, job = [], f"told{count}"
            for rank, client in enumerate(clients):
                # A third rank never comes: the parts stay.
                send(rank_stream(client, job, rank, 3, [rank]), RankFrames(0, rank, 3, count, calls))
                asked = f"SELECT encode(part, 'hex') FROM node_parts WHERE job='{job}' AND rank={rank}"
                wait("the part", lambda: history.rows(asked) != [])  # noqa: B023
                told.append(bytes.fromhex("".join(history.rows(asked))))
            write("node_part", f"of-{count}", b"\x03" + pieces(told))
            write("node_part", f"alone-{count}", b"\x02" + pieces(told[:1]))
    finally:
        for each in (*clients, *daemons, history):
            each.close()


def texts() -> None:
    for name in ("ieee", "cuda-sm90", "pytorch-cpu"):
        write("profile", name, (ROOT / "deploy" / "profiles" / f"{name}.textproto").read_bytes())
    policy = re.search(r"```\n(projects: .*?)```", (ROOT / "server" / "README.md").read_text(), re.DOTALL)
    assert policy, "the README's policy"
    tokens = f"ci {'0a' * 32} 2027-01-01T00:00:00Z\n"
    known = policy[1].replace('"trainers"', '"0"').replace('"grace"', '"1000"')
    write("policy", "readme", policy[1].encode())
    write("policy", "tokens", f"{known}\n--\n# ours\n{tokens}".encode())
    for order in range(8):
        write("page_token", f"place-{order}", bytes((order,)) + b"2 1700000000000000")
    write("page_token", "token", b"tZDkwZDMxZmZhM2I0OGJkMTIg")


def main() -> None:
    for old in CORPUS.glob("*/seed-*"):
        old.unlink()
    frames_and_traces()
    formulas()
    stored()
    parts()
    texts()
    print(f"{CORPUS}: {sum(file.stat().st_size for file in CORPUS.rglob('*') if file.is_file())} bytes")


if __name__ == "__main__":
    main()
