"""Every method of the API, tried by somebody whom it is none of the business: another user of the machine, a token of
another project, one that is wrong, expired or missing, the wrong certificate or none.

`try_all` returns what each attempt came to. An attempt is let in where it is answered with what is another's, or with
anything where the caller could not say who he is."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import grpc
from authority import Authority
from google.protobuf import message_factory
from other_user import as_user
from query_support import send, type_ii
from secure import Tokens, bearer, channel, port_of
from stream_client import Client, frame
from stream_daemon import DaemonProcess

from plumbline.v1 import archive_pb2, audit_pb2, query_pb2

MARKER = "none-of-your-business"  # The name of the other's run.
CALL_S_MAX = 20.0
WATCH_S = 0.5  # Watching does not end by itself.

# Answered to everybody who has a name: with what is his.
OPEN_TO_ALL = {"ListJobs", "ListVerdicts", "ListAudits", "GetStats", "WatchVerdicts", "ListGolden", "GetServerInfo"}


@dataclass(frozen=True)
class Victim:
    """What is another's."""

    verdict: str
    handle: str
    golden: str


@dataclass(frozen=True)
class Attempt:
    way: str
    method: str
    code: str
    let_in: bool

    def __str__(self) -> str:
        return f"{self.way}: {self.method}: {self.code}"


def requests(victim: Victim) -> dict[str, object]:
    """By method: a request for what is the victim's."""
    identity = audit_pb2.Identity(project="default", job="job", run=MARKER)
    golden = archive_pb2.GoldenName(name=victim.golden)
    verdict = query_pb2.GetVerdictRequest(id=victim.verdict)
    replay = archive_pb2.ReplayRequest(id=victim.verdict)
    return {
        "OpenJob": audit_pb2.OpenJobRequest(identity=identity),
        "Audit": frame(open=audit_pb2.Open(handle=victim.handle)),
        "ListJobs": query_pb2.ListJobsRequest(),
        "GetJob": query_pb2.GetJobRequest(job="job"),
        "ListVerdicts": query_pb2.ListVerdictsRequest(),
        "GetVerdict": verdict,
        "WatchVerdicts": query_pb2.WatchVerdictsRequest(include_past=True),
        "ListRuns": query_pb2.ListRunsRequest(job="job"),
        "ListErrors": query_pb2.ListErrorsRequest(job="job"),
        "ListAudits": query_pb2.ListAuditsRequest(),
        "DeleteJob": query_pb2.DeleteJobRequest(job="job"),
        "GetServerInfo": query_pb2.GetServerInfoRequest(),
        "GetStats": query_pb2.GetStatsRequest(),
        "ExplainVerdict": verdict,
        "ExportTrace": archive_pb2.ExportTraceRequest(id=victim.verdict),
        "Replay": replay,
        "Reproduce": replay,
        "ListGolden": archive_pb2.ListGoldenRequest(),
        "ExportGolden": golden,
        "ImportGolden": archive_pb2.ImportGoldenRequest(name=victim.golden, data=b"PLGOLDN2"),
        "RemoveGolden": golden,
    }


def attempts(
    way: str, calls: grpc.Channel, victim: Victim, nameless: bool, metadata: list[tuple[str, str]] | None = None
) -> list[Attempt]:
    """One of each method of the services, as their descriptors have them."""
    asked = requests(victim)
    made = []
    for file in (audit_pb2, query_pb2, archive_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                code, answers = _call(calls, service.full_name, method, asked[method.name], metadata)
                seen = any(MARKER.encode() in each.SerializeToString() for each in answers)
                seen |= any(each.verdicts > 0 for each in answers if isinstance(each, query_pb2.Stats))
                answered = code == "OK" and (nameless or method.name not in OPEN_TO_ALL)
                made.append(Attempt(way, method.name, code, seen or answered))
    return made


def _call(calls: grpc.Channel, service: str, method, request, metadata) -> tuple[str, list]:
    kind = {(False, False): "unary_unary", (False, True): "unary_stream", (True, False): "stream_unary"}.get(
        (method.client_streaming, method.server_streaming), "stream_stream"
    )
    stub = getattr(calls, kind)(
        f"/{service}/{method.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
    )
    answers: list = []
    try:
        seconds = WATCH_S if method.name in ("WatchVerdicts", "Audit") else CALL_S_MAX
        got = stub(iter([request]) if method.client_streaming else request, timeout=seconds, metadata=metadata)
        for answer in got if method.server_streaming else [got]:
            answers.append(answer)
        return "OK", answers
    except grpc.RpcError as error:
        return error.code().name, answers


@contextlib.contextmanager
def victim_of(daemon: DaemonProcess) -> Iterator[Victim]:
    """A run of root's, with a TYPE_II verdict, its trace and a golden run; still there at the end."""
    client = Client(daemon.address)
    try:
        stream = client.stream(MARKER, record_golden=MARKER)
        (verdict,) = send(stream, type_ii(0))
        stream.close()
        yield Victim(verdict.id, client.open(MARKER, record_golden=MARKER).handle, MARKER)
        own = attempts("root", client.channel, Victim(verdict.id, "", MARKER), nameless=False)
        there = {attempt.method for attempt in own if attempt.let_in}
        assert there >= {"GetVerdict", "DeleteJob", "RemoveGolden"}, f"root's own has gone: {own}"
    finally:
        client.close()


IMPORTS = "from dataclasses import asdict; from unauthorised import Victim, attempts"
AS_USER = """
found = [asdict(each) for each in attempts({way!r}, client.channel, Victim(**{victim!r}), nameless=False)]
"""


def try_all() -> list[Attempt]:
    """Against daemons of its own. Needs root, who can be somebody else."""
    made: list[Attempt] = []
    with tempfile.TemporaryDirectory(prefix="plumbline.") as folder, contextlib.ExitStack() as stack:
        directory = Path(folder)
        authority, tokens = Authority(directory), Tokens(directory)
        pair = authority.signs("daemon")
        lines = [tokens.line("other"), tokens.line("late", expires="2020-01-01T00:00:00Z")]
        tokens.path.write_text("\n".join(lines))
        tokens.path.chmod(0o600)
        policy = directory / "policy"
        policy.write_text(
            'projects: "default" projects: "another"\n'
            'grants { projects: "another" roles: ADMIN tokens: "other" users: "1234" }\n'
        )
        tls = ["--listen=127.0.0.1:0", f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}"]

        def served(*flags: str) -> tuple[DaemonProcess, Victim]:
            daemon = DaemonProcess("--socket-mode=0666", *flags)
            stack.callback(daemon.close)
            daemon.directory.chmod(0o711)
            return daemon, stack.enter_context(victim_of(daemon))

        def by_user(way: str, daemon: DaemonProcess, victim: Victim, **who: object) -> None:
            found = as_user(daemon.address, AS_USER.format(way=way, victim=asdict(victim)), imports=IMPORTS, **who)
            assert all(each.keys() == {field.name for field in fields(Attempt)} for each in found)
            made.extend(Attempt(**each) for each in found)

        def by_tls(way: str, daemon: DaemonProcess, victim: Victim, nameless: bool, token: str = "", own=None) -> None:
            with channel(f"localhost:{port_of(daemon)}", authority.certificate, own) as calls:
                made.extend(attempts(way, calls, victim, nameless, bearer(token) if token else None))

        daemon, victim = served()
        by_user("another user", daemon, victim)
        daemon, victim = served("--listen=127.0.0.1:0", "--insecure")
        with grpc.insecure_channel(f"127.0.0.1:{port_of(daemon)}") as calls:
            made += attempts("loopback without a name", calls, victim, nameless=False)
        daemon, victim = served(*tls, f"--token-file={tokens.path}", f"--policy={policy}")
        by_user("another user, by a policy", daemon, victim)
        by_user("an administrator of another project", daemon, victim, user=1234)
        by_tls("a token of another project", daemon, victim, False, tokens.secrets["other"])
        by_tls("no token", daemon, victim, True)
        by_tls("a wrong token", daemon, victim, True, tokens.secrets["other"][:-1])
        by_tls("an expired token", daemon, victim, True, tokens.secrets["late"])
        daemon, victim = served(*tls, f"--tls-client-ca={authority.certificate}")
        stranger = Authority(directory, "stranger").signs("guest")
        by_tls("no certificate", daemon, victim, True)
        by_tls("a certificate of another authority", daemon, victim, True, own=stranger)
        by_tls("an expired certificate", daemon, victim, True, own=authority.signs("late", days=-1))
        by_tls("another's certificate", daemon, victim, False, own=authority.signs("guest2"))
    return made
