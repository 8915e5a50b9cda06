"""Who owns what: runs, verdicts, traces, golden runs and memory of two users on one daemon."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import code_pb2
from other_user import NOBODY, as_user
from query_support import query_stub, run_plumb, send, type_i, type_ii
from secure import port_of
from stream_client import Client, StepFrames
from stream_daemon import DaemonProcess, binary
from test_shared_memory import SIZE, region, register

from plumbline.v1 import query_pb2


@pytest.fixture
def daemon(new_daemon: Callable[..., DaemonProcess]) -> DaemonProcess:
    """One that everybody may connect to."""
    daemon = new_daemon("--socket-mode=0666", "--reference-timeout=300ms")
    daemon.directory.chmod(0o711)
    return daemon


@pytest.fixture
def root(daemon: DaemonProcess) -> Iterator[Client]:
    client = Client(daemon.address)
    yield client
    client.close()


def type_ii_of(client: Client, run: str = "mine", **fields: object) -> str:
    stream = client.stream(run, **fields)
    (verdict,) = send(stream, type_ii(0))
    stream.close()
    return verdict.id


def test_a_user_sees_his_own_alone(daemon: DaemonProcess, root: Client) -> None:
    theirs = type_ii_of(root)
    found = as_user(
        daemon.address,
        f"""
found = dict(
    get=code(lambda: verdicts.GetVerdict(query_pb2.GetVerdictRequest(id={theirs!r}))),
    explain=code(lambda: verdicts.ExplainVerdict(query_pb2.GetVerdictRequest(id={theirs!r}))),
    job=code(lambda: verdicts.GetJob(query_pb2.GetJobRequest(job="job"))),
    trace=code(lambda: archive.ExportTrace(archive_pb2.ExportTraceRequest(id={theirs!r}))),
    replay=code(lambda: archive.Replay(iter([archive_pb2.ReplayRequest(id={theirs!r})]))),
    reproduce=code(lambda: archive.Reproduce(iter([archive_pb2.ReplayRequest(id={theirs!r})]))),
)
stream = client.stream("his", "job")
stream.send(*StepFrames(0).frames())
stream.next("verdict")
stream.close()
watch = verdicts.WatchVerdicts(query_pb2.WatchVerdictsRequest(include_past=True))
found["watched"] = next(watch).id
watch.cancel()
found["listed"] = [each.id for each in verdicts.ListVerdicts(query_pb2.ListVerdictsRequest()).verdicts]
found["jobs"] = [
    (list(each.runs), each.steps, each.type_ii, each.worst_verdict_id)
    for each in verdicts.ListJobs(query_pb2.ListJobsRequest()).jobs
]
found["stats"] = verdicts.GetStats(query_pb2.GetStatsRequest()).verdicts
""",
    )
    his = "default/job/his/0/0"
    assert found == {
        **dict.fromkeys(["get", "explain", "job", "trace", "replay", "reproduce"], "NOT_FOUND"),
        "watched": his,
        "listed": [his],
        "jobs": [[["his"], 1, 0, his]],
        "stats": 1,
    }
    listed = query_stub(root).ListVerdicts(query_pb2.ListVerdictsRequest()).verdicts
    assert [each.id for each in listed] == [theirs, his]
    assert run_plumb(daemon, "explain", theirs).returncode == 2


TAKE = """
def opened(**fields):
    try:
        return client.open(**fields).handle
    except grpc.RpcError as error:
        return error.code().name

stolen = Stream(client.channel, audit_pb2.Job(handle={handle!r}))
found = dict(
    run=opened(run="mine"),
    rank=opened(run="mine", rank=1, ranks=2),
    reference=opened(run="other", reference_run="mine"),
    stream=stolen.end().name,
)
"""


def test_a_run_of_another_user_cannot_be_taken(daemon: DaemonProcess, root: Client) -> None:
    job = root.open("mine", reference=True)
    expected = dict.fromkeys(["run", "rank", "reference"], "PERMISSION_DENIED") | {"stream": "NOT_FOUND"}
    assert as_user(daemon.address, TAKE.format(handle=job.handle)) == expected
    stream = root.stream("mine", reference=True)
    send(stream, type_i(0))
    stream.close()
    daemon.terminate()
    assert daemon.wait() == 0
    daemon.start()
    assert as_user(daemon.address, TAKE.format(handle=job.handle)) == expected


def test_golden_runs_are_their_owners(daemon: DaemonProcess, root: Client, tmp_path: Path) -> None:
    stream = root.stream("mine", record_golden="v1")
    send(stream, type_i(0))
    stream.close()
    file = tmp_path / "v1.golden"
    assert run_plumb(daemon, "golden", "export", "v1", str(file)).returncode == 0
    program = """
name = archive_pb2.GoldenName(name="v1")
request = archive_pb2.ImportGoldenRequest(name="copy", data=bytes.fromhex({data!r}))
found = dict(
    listed=len(archive.ListGolden(archive_pb2.ListGoldenRequest()).golden),
    export=code(lambda: archive.ExportGolden(name)),
    remove=code(lambda: archive.RemoveGolden(name)),
    judged=code(lambda: client.open("his", golden="v1")),
    recorded=code(lambda: client.open("his", record_golden="v1")),
    owner=archive.ImportGolden(iter([request])).owner,
)
found["own"] = [each.header.name for each in archive.ListGolden(archive_pb2.ListGoldenRequest()).golden]
found["copy"] = code(lambda: archive.ExportGolden(archive_pb2.GoldenName(name="copy")))
"""
    assert as_user(daemon.address, program.format(data=file.read_bytes().hex())) == {
        "listed": 0,
        "export": "NOT_FOUND",
        "remove": "NOT_FOUND",
        "judged": "PERMISSION_DENIED",
        "recorded": "ALREADY_EXISTS",
        "owner": f"uid:{NOBODY}",
        "own": ["copy"],
        "copy": "OK",
    }
    assert run_plumb(daemon, "golden", "remove", "copy").returncode == 0


REGISTER = """
own = os.memfd_create("his")
os.ftruncate(own, SIZE)
stream = client.stream("his")
# In the name of the other's process: the daemon looks into the one that connected.
named = audit_pb2.Region(region=1, process={process}, fd={fd}, inode={inode}, size=SIZE)
found = [register(stream, frame(region=named)), register(stream, region(own, number=2))]
found.append(register(stream, region(own, number=3, process=1)))
"""


def test_memory_of_another_user_is_not_read(daemon: DaemonProcess, root: Client) -> None:
    theirs = os.memfd_create("theirs")
    os.ftruncate(theirs, SIZE)
    program = REGISTER.format(process=os.getpid(), fd=theirs, inode=os.fstat(theirs).st_ino)
    (code, ((name, _),)), own, also_own = as_user(daemon.address, program)
    assert code in (code_pb2.INVALID_ARGUMENT, code_pb2.FAILED_PRECONDITION), "what it has at that number, if anything"
    assert name in ("region.fd", "region.inode")
    assert own == also_own == [code_pb2.OK, []]
    os.fchown(theirs, NOBODY, -1)
    stream = root.stream("mine")
    code, ((name, description),) = register(stream, region(theirs))
    assert (code, name) == (code_pb2.PERMISSION_DENIED, "region.fd") and f"found user {NOBODY}" in description


def test_the_socket_lets_in_whom_it_shall(new_daemon: Callable[..., DaemonProcess]) -> None:
    def reached(flags: list[str], groups: list[int]) -> str:
        daemon = new_daemon(*flags)
        daemon.directory.chmod(0o711)
        try:
            program = "found = code(lambda: verdicts.ListJobs(query_pb2.ListJobsRequest(), timeout=5))"
            return as_user(daemon.address, program, groups=groups)
        finally:
            daemon.close()

    assert reached([], []) == "UNAVAILABLE"
    assert reached(["--socket-mode=0660", "--socket-group=1234"], []) == "UNAVAILABLE"
    assert reached(["--socket-mode=0660", "--socket-group=1234"], [1234]) == "OK"


def test_a_policy_says_who_may_what(new_daemon: Callable[..., DaemonProcess], tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.write_text(
        'projects: "default" projects: "team"\n'
        f'grants {{ projects: "default" roles: READ users: "{NOBODY}" }}\n'
        'grants { projects: "team" roles: STREAM groups: "1234" }\n'
    )
    daemon = new_daemon("--socket-mode=0666", f"--policy={policy}")
    daemon.directory.chmod(0o711)
    root = Client(daemon.address)
    theirs = type_ii_of(root)
    program = f"""
def opened(project):
    identity = audit_pb2.Identity(project=project, job="job", run="his")
    return code(lambda: client.service.OpenJob(audit_pb2.OpenJobRequest(identity=identity)))
found = dict(
    seen=code(lambda: verdicts.GetVerdict(query_pb2.GetVerdictRequest(id={theirs!r}))),
    listed=len(verdicts.ListVerdicts(query_pb2.ListVerdictsRequest()).verdicts),
    taken=code(lambda: client.open("mine")),
    default=opened("default"),
    team=opened("team"),
    unknown=opened("unknown"),
)
"""
    expected = {
        "seen": "OK",
        "listed": 1,
        **dict.fromkeys(["taken", "default", "team", "unknown"], "PERMISSION_DENIED"),
    }
    assert as_user(daemon.address, program) == expected
    assert as_user(daemon.address, program, groups=[1234]) == {**expected, "team": "OK"}

    policy.write_text('grants { projects: "other" }')
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    while "stay as they were" not in daemon.log():
        assert daemon.alive()
    assert as_user(daemon.address, program) == expected
    policy.write_text(f'grants {{ projects: "*" roles: ADMIN users: "{NOBODY}" }}')
    daemon.process.send_signal(signal.SIGHUP)
    while "were read again" not in daemon.log():
        assert daemon.alive()
    assert set(as_user(daemon.address, program).values()) == {"OK", 1}
    root.close()


def test_the_configuration_is_checked_without_a_start(tmp_path: Path) -> None:
    policy = tmp_path / "policy"

    def check(*flags: str) -> tuple[int, str]:
        command = [binary(), "--check-config", f"--listen=unix:{tmp_path}/s", f"--data-dir={tmp_path}/data", *flags]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return ran.returncode, ran.stdout + ran.stderr

    policy.write_text('projects: "a" grants { projects: "a" roles: STREAM users: "root" }')
    assert check(f"--policy={policy}") == (0, "plumblined: the configuration is right\n")
    assert not (tmp_path / "data").exists() and not (tmp_path / "s").exists()
    policy.write_text('projects: "a"\ngrants { projects: "b" roles: STREAM users: "root" }')
    status, said = check(f"--policy={policy}")
    assert status == 1
    assert said == (
        f'plumblined: --policy: {policy}: line 2: grants.projects: expected "*" or one of `projects`, found "b"\n'
    )
    for flag, wrong in {
        "--socket-mode=999": "--socket-mode: expected permissions from 0600 to 0777",
        "--socket-mode=0440": "--socket-mode: expected permissions from 0600 to 0777",
        "--socket-group=no-such-group": "--socket-group: expected a group of this machine",
        "--listen=127.0.0.1:0": "open to every user of this machine",
        "--listen=127.0.0.1.example.invalid:0": "expected a host that resolves",
        "--listen=0.0.0.0:0": "is not on loopback",
        "--listen=[::]:0": "is not on loopback",
        "--metrics-listen=0.0.0.0:0": "is not on loopback",
        "--metrics-listen=127.example.invalid:0": "expected a host that resolves",
        "--metrics-listen=unix:/tmp/m": "expected HOST:PORT",
    }.items():
        status, said = check(flag)
        assert status == 1 and wrong in said, said
    assert check("--metrics-listen=0.0.0.0:0", "--metrics-public")[0] == 0
    assert check("--listen=127.0.0.1:0", "--insecure")[0] == 0
    assert check("--listen=localhost:0", "--insecure")[0] == 0
    assert check("--listen=127.1:0", "--insecure")[0] == 0
    assert "is not on loopback" in check("--listen=0.0.0.0:0", "--insecure")[1]


BY_TCP = ("--listen=127.0.0.1:0", "--insecure")


@pytest.fixture(params=["unix", "tcp"])
def place(request: pytest.FixtureRequest, new_daemon: Callable[..., DaemonProcess]) -> tuple[DaemonProcess, str]:
    """A daemon that listens on both, and an address of it."""
    daemon = new_daemon(*BY_TCP)
    return daemon, daemon.address if request.param == "unix" else f"127.0.0.1:{port_of(daemon)}"


def connected(address: str, message: bytes = b"") -> socket.socket:
    local = address.startswith("unix:")
    made = socket.socket(socket.AF_UNIX if local else socket.AF_INET)
    host, _, port = address.rpartition(":")
    made.connect(port if local else (host, int(port)))
    made.settimeout(60)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # It may be closed already.
        made.sendall(message)
    return made


def allow_descriptors(count: int) -> int:
    """So many, or as many as the system lets this process have."""
    most = min(count, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return most


def test_the_listener_outlives_a_time_without_descriptors(place: tuple[DaemonProcess, str]) -> None:
    daemon, address = place
    assert daemon.process is not None
    pid = daemon.process.pid
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={used + 8}:4096"], check=True)
    held = [connected(address) for _ in range(64)]
    client = Client(address)
    with pytest.raises(grpc.RpcError):
        query_stub(client).ListJobs(query_pb2.ListJobsRequest(), timeout=3)
    for each in held:
        each.close()
    query_stub(client).ListJobs(query_pb2.ListJobsRequest(), timeout=60, wait_for_ready=True)
    client.close()


def test_connections_that_say_nothing_keep_nobody_out(place: tuple[DaemonProcess, str]) -> None:
    _, address = place
    count = allow_descriptors(10_500) - 500
    silent = [connected(address, b"PRI * HT"[: i % 9]) for i in range(count)]
    client = Client(address)
    query_stub(client).ListJobs(query_pb2.ListJobsRequest(), timeout=60)
    assert silent[0].recv(4096).startswith(b"HTTP/1.1 505"), "the oldest make room"
    with connected(address, b"GET / HTTP/1.1\r\n\r\n") as wrong:
        assert b"expected gRPC" in wrong.recv(4096)
    query_stub(client).ListJobs(query_pb2.ListJobsRequest(), timeout=60)
    for each in silent:
        each.close()
    client.close()


GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # And empty SETTINGS.


def is_served(connection: socket.socket) -> bool:
    """Whether it is answered; what is turned away is closed."""
    try:
        return connection.recv(1) != b""
    except ConnectionResetError:
        return False


def test_connections_of_one_peer_are_capped(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon("--socket-mode=0666", "--max-connections=20", "--max-connections-per-peer=10", *BY_TCP)
    daemon.directory.chmod(0o711)
    for address in (daemon.address, f"127.0.0.1:{port_of(daemon)}"):
        held = [connected(address, GREETING) for _ in range(30)]
        # The connection that asked whether the daemon is up may not have ended yet.
        assert sum(is_served(each) for each in held) in (9, 10)
        assert "--max-connections-per-peer" in daemon.log()
        program = "found = code(lambda: verdicts.ListJobs(query_pb2.ListJobsRequest(), timeout=20))"
        assert as_user(daemon.address, program) == "OK"
        for each in held:
            each.close()
        client = Client(address)
        query_stub(client).ListJobs(query_pb2.ListJobsRequest(), timeout=60, wait_for_ready=True)
        client.close()


def test_streams_of_one_user_are_capped(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon("--socket-mode=0666", "--max-streams=20", "--max-streams-per-user=5")
    daemon.directory.chmod(0o711)
    client = Client(daemon.address)
    streams = [client.stream(f"run-{i}") for i in range(5)]
    for i, stream in enumerate(streams):
        stream.send(*StepFrames(i).frames())
        stream.next("verdict")
    late = client.stream("late")
    assert late.end() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "--max-streams-per-user" in late.call.details()
    program = """
stream = client.stream("his")
stream.send(*StepFrames(0).frames())
found = stream.next("verdict").step
stream.close()
"""
    assert as_user(daemon.address, program) == 0
    streams[0].close()
    again = client.stream("again")
    again.send(*StepFrames(0).frames())
    again.next("verdict")
    client.close()


def test_a_socket_has_its_mode(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon("--socket-mode=0640", "--socket-group=1234")
    status = (daemon.directory / "d.sock").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o640, 1234)
