"""TCP: TLS, client certificates and bearer tokens, and what is wrong with each of them."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import torch
from authority import Authority, Pair
from query_support import plumb, query_stub
from secure import Tokens, bearer, channel, port_of
from stream_client import Client, StepFrames, Stream
from stream_daemon import DaemonProcess, binary

import plumbline
from plumbline.v1 import audit_pb2, audit_pb2_grpc, query_pb2, query_pb2_grpc


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    made = Tokens(tmp_path)
    made.write("alpha", "beta")
    return made


@pytest.fixture
def serve(new_daemon: Callable[..., DaemonProcess], authority: Authority) -> Callable[..., tuple[DaemonProcess, str]]:
    """A daemon with TLS on a port of loopback, and that address."""

    def started(*flags: str, pair: Pair | None = None) -> tuple[DaemonProcess, str]:
        pair = pair or authority.signs("daemon")
        tls = [f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}"]
        daemon = new_daemon("--listen=127.0.0.1:0", *tls, *flags)
        return daemon, f"localhost:{port_of(daemon)}"

    return started


def code_of(channel: grpc.Channel, metadata: list[tuple[str, str]] | None = None) -> str:
    try:
        jobs = query_pb2_grpc.VerdictServiceStub(channel).ListJobs
        jobs(query_pb2.ListJobsRequest(), timeout=20, metadata=metadata)
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


def open_code(channel: grpc.Channel, project: str, token: str, run: str = "run") -> str:
    identity = audit_pb2.Identity(project=project, job="job", run=run)
    try:
        audit_pb2_grpc.AuditServiceStub(channel).OpenJob(
            audit_pb2.OpenJobRequest(identity=identity), timeout=20, metadata=bearer(token)
        )
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


def test_a_token_lets_in_and_nothing_else_does(
    serve: Callable[..., tuple[DaemonProcess, str]], authority: Authority, tokens: Tokens
) -> None:
    daemon, address = serve(f"--token-file={tokens.path}")
    secret = tokens.secrets["alpha"]
    with channel(address, authority.certificate) as here:
        assert code_of(here, bearer(secret)) == "OK"
        assert code_of(here) == "UNAUTHENTICATED"
        for wrong in (secrets.token_urlsafe(32), secret[:-1], secret + "x", secret.swapcase(), "x"):
            assert code_of(here, bearer(wrong)) == "UNAUTHENTICATED"
        assert code_of(here, [("authorization", f"Basic {secret}")]) == "UNAUTHENTICATED"
        for name in ("authorization-bin", "token"):
            sent = secret.encode() if name.endswith("-bin") else secret
            assert code_of(here, [(name, sent)]) == "UNAUTHENTICATED"
        stream = Stream(here, audit_pb2.Job(handle="x"))
        assert stream.end() == grpc.StatusCode.UNAUTHENTICATED
    assert all(each not in daemon.log() for each in tokens.secrets.values())
    # A token counts on the unix socket too, and a wrong one is no way in for its user either.
    local = Client(daemon.address)
    assert code_of(local.channel, bearer("x")) == "UNAUTHENTICATED"
    assert code_of(local.channel) == code_of(local.channel, bearer(secret)) == "OK"
    local.close()


def test_tokens_are_bound_to_projects_and_can_be_revoked(
    serve: Callable[..., tuple[DaemonProcess, str]], authority: Authority, tokens: Tokens, tmp_path: Path
) -> None:
    policy = tmp_path / "policy"
    policy.write_text(
        'projects: "a" projects: "b"\n'
        'grants { projects: "a" roles: STREAM tokens: "alpha" }\n'
        'grants { projects: "a" projects: "b" roles: READ tokens: "beta" }\n'
    )
    daemon, address = serve(f"--token-file={tokens.path}", f"--policy={policy}")
    alpha, beta = tokens.secrets["alpha"], tokens.secrets["beta"]
    with channel(address, authority.certificate) as here:
        assert open_code(here, "a", alpha) == "OK"
        assert open_code(here, "b", alpha) == open_code(here, "c", alpha) == "PERMISSION_DENIED"
        assert open_code(here, "a", beta) == open_code(here, "a", beta, "other") == "PERMISSION_DENIED"
        jobs = query_pb2_grpc.VerdictServiceStub(here).ListJobs
        assert [job.job for job in jobs(query_pb2.ListJobsRequest(), metadata=bearer(beta)).jobs] == ["job"]

        identity = audit_pb2.Identity(project="a", job="job", run="run")
        service = audit_pb2_grpc.AuditServiceStub(here)
        job = service.OpenJob(audit_pb2.OpenJobRequest(identity=identity), metadata=bearer(alpha))
        stolen = Stream(here, job, metadata=bearer(beta))
        assert stolen.end() == grpc.StatusCode.NOT_FOUND
        stream = Stream(here, job, metadata=bearer(alpha))
        stream.send(*StepFrames(0).frames())
        assert stream.next("verdict").step == 0

        tokens.write("beta")
        policy.write_text('projects: "a" grants { projects: "a" roles: READ tokens: "beta" }')
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        while "were read again" not in daemon.log():
            assert daemon.alive()
        assert code_of(here, bearer(alpha)) == "UNAUTHENTICATED"
        stream.send(*StepFrames(1).frames())
        assert stream.end() == grpc.StatusCode.UNAUTHENTICATED, "a stream that was open"


def test_an_expired_token(
    serve: Callable[..., tuple[DaemonProcess, str]], authority: Authority, tokens: Tokens
) -> None:
    tokens.write("alpha", "beta", expires="2020-01-01T00:00:00Z")
    _, address = serve(f"--token-file={tokens.path}")
    with channel(address, authority.certificate) as here:
        assert code_of(here, bearer(tokens.secrets["alpha"])) == "UNAUTHENTICATED"


def test_client_certificates(
    serve: Callable[..., tuple[DaemonProcess, str]], authority: Authority, tmp_path: Path
) -> None:
    policy = tmp_path / "policy"
    policy.write_text('projects: "default" grants { projects: "default" roles: STREAM certificates: "trainer" }')
    daemon, address = serve(f"--tls-client-ca={authority.certificate}", f"--policy={policy}")
    other = Authority(tmp_path, "other")

    def with_certificate(own: Pair | None) -> str:
        with channel(address, authority.certificate, own) as here:
            return code_of(here)

    trainer, guest = authority.signs("trainer"), authority.signs("guest")
    assert with_certificate(None) == "UNAVAILABLE", "without one"
    assert with_certificate(authority.signs("late", days=-1)) == "UNAVAILABLE", "expired"
    assert with_certificate(other.signs("trainer2")) == "UNAVAILABLE", "of another authority"
    assert with_certificate(trainer) == "OK"
    for own, expected in ((trainer, "OK"), (guest, "PERMISSION_DENIED")):
        with channel(address, authority.certificate, own) as here:
            assert open_code(here, "default", "", own.key.stem) == expected
    root = Client(daemon.address)
    assert [list(job.runs) for job in query_stub(root).ListJobs(query_pb2.ListJobsRequest()).jobs] == [["trainer"]]
    root.close()


def test_a_daemon_that_is_not_what_it_says(
    serve: Callable[..., tuple[DaemonProcess, str]], authority: Authority, tokens: Tokens, tmp_path: Path
) -> None:
    """Wrong host, self-signed, of another authority, without TLS: no client believes it, and none sends its token."""
    flag = f"--token-file={tokens.path}"
    _, wrong_host = serve(flag, pair=authority.signs("elsewhere", host="elsewhere.example.org"))
    alone = Authority(tmp_path, "alone")  # Its own certificate is one that it signed itself.
    _, self_signed = serve(flag, pair=Pair(alone.certificate, tmp_path / "alone.key"))
    for address in (wrong_host, self_signed):
        with channel(address, authority.certificate) as here:
            assert code_of(here, bearer(tokens.secrets["alpha"])) == "UNAVAILABLE"
    _, right = serve(flag)
    with channel(right, None) as here:  # The system's authorities do not know ours.
        assert code_of(here, bearer(tokens.secrets["alpha"])) == "UNAVAILABLE"
    with grpc.insecure_channel(right) as here:
        assert code_of(here, bearer(tokens.secrets["alpha"])) == "UNAVAILABLE"


def refused(*flags: str) -> str:
    ended = subprocess.run(
        [binary(), "--check-config", *flags], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1, ended
    return ended.stderr


def test_what_is_wrong_with_files_is_said_at_the_start(authority: Authority, tokens: Tokens, tmp_path: Path) -> None:
    good, other = authority.signs("daemon"), authority.signs("other")
    late = authority.signs("late", days=-1)
    token_file = f"--token-file={tokens.path}"

    def tls(pair: Pair) -> list[str]:
        return [f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}"]

    assert "found one that has expired" in refused(*tls(late), token_file)
    assert "--tls-key" in refused(*tls(Pair(good.certificate, other.key)), token_file)
    assert "--tls-cert" in refused(*tls(Pair(tmp_path / "none", good.key)), token_file)
    assert "expected both, found one" in refused(f"--tls-cert={good.certificate}", token_file)
    assert "nothing would say who a client is" in refused(*tls(good))
    assert "--tls-client-ca" in refused(*tls(good), f"--tls-client-ca={good.key}")
    assert "--token-file: expected a file" in refused(*tls(good), f"--token-file={tmp_path}/none")
    tokens.path.write_text("alpha the-secret-itself")
    said = refused(token_file)
    assert "line 1" in said and "the-secret-itself" not in said
    tokens.path.chmod(0o666)
    assert "its owner alone" in refused(token_file)


def test_http_and_noise_on_the_grpc_port(
    serve: Callable[..., tuple[DaemonProcess, str]], authority: Authority, tokens: Tokens
) -> None:
    daemon, address = serve(f"--token-file={tokens.path}")
    port, path = int(address.rpartition(":")[2]), daemon.address.removeprefix("unix:")
    for message in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", bytes(4096), os.urandom(4096)):
        for family, at in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, path)):
            with socket.socket(family) as raw:
                raw.settimeout(60)
                raw.connect(at)
                with contextlib.suppress(OSError):  # The daemon may have hung up by then.
                    raw.sendall(message)
                    raw.shutdown(socket.SHUT_WR)
                    while raw.recv(65536):
                        pass
    with channel(address, authority.certificate) as here:
        assert code_of(here, bearer(tokens.secrets["alpha"])) == "OK"


def test_loopback_without_encryption_is_asked_for_and_shows_nothing_of_others(
    new_daemon: Callable[..., DaemonProcess],
) -> None:
    daemon = new_daemon("--listen=127.0.0.1:0", "--insecure")
    root, somebody = Client(daemon.address), Client(f"127.0.0.1:{port_of(daemon)}")
    root.open("mine")
    assert code_of(somebody.channel) == "OK"
    assert not query_stub(somebody).ListJobs(query_pb2.ListJobsRequest()).jobs
    with pytest.raises(grpc.RpcError) as taken:
        somebody.open("mine")
    assert taken.value.code() == grpc.StatusCode.PERMISSION_DENIED
    somebody.open("his")
    assert len(query_stub(root).ListJobs(query_pb2.ListJobsRequest()).jobs[0].runs) == 2
    root.close()
    somebody.close()


def train(address: str, **given: object) -> plumbline.Audit:
    model = torch.nn.Linear(4, 1)
    with plumbline.watch(model, None, address, job="tiny", every=1, **given) as audit:
        with audit.step():
            model(torch.ones(2, 4)).sum().backward()
        assert audit.flush(60) and not audit.errors()
    return audit


def test_the_python_client(
    serve: Callable[..., tuple[DaemonProcess, str]],
    authority: Authority,
    tokens: Tokens,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon, address = serve(f"--token-file={tokens.path}", f"--tls-client-ca={authority.certificate}")
    own, secret = authority.signs("trainer"), tokens.secrets["alpha"]
    tls = plumbline.Tls(authority.certificate, own.certificate, own.key)
    assert train(address, token=secret, tls=tls).verdicts()
    with pytest.raises(plumbline.PlumblineError, match="authorization: expected a token") as wrong:
        train(address, token="wrong", tls=tls)
    assert wrong.value.code == "UNAUTHENTICATED"
    with pytest.raises(plumbline.PlumblineError, match="expected TLS, or an address on this machine"):
        train("example.org:7077", token=secret)
    with pytest.raises(plumbline.PlumblineError, match="token: cannot read "):
        monkeypatch.setenv("PLUMBLINE_TOKEN_FILE", str(tmp_path / "none"))
        train(address, tls=tls)
    with pytest.raises(plumbline.PlumblineError, match="both certificate and key"):
        train(address, token=secret, tls=plumbline.Tls(authority.certificate, own.certificate))

    file = tmp_path / "token"
    file.write_text(secret + "\n")
    for name, value in {
        "TOKEN_FILE": file,
        "TLS_CA": authority.certificate,
        "TLS_CERT": own.certificate,
        "TLS_KEY": own.key,
    }.items():
        monkeypatch.setenv(f"PLUMBLINE_{name}", str(value))
    assert train(address).verdicts()
    assert train(daemon.address).verdicts(), "a unix socket needs none of it"
    assert secret not in repr(plumbline.credentials.checked(token=secret)) and secret not in daemon.log()


def test_one_setting_is_for_all_addresses_of_a_list(
    serve: Callable[..., tuple[DaemonProcess, str]],
    new_daemon: Callable[..., DaemonProcess],
    authority: Authority,
    tokens: Tokens,
    tmp_path: Path,
) -> None:
    _, address = serve(f"--token-file={tokens.path}")
    plain = port_of(new_daemon("--listen=127.0.0.1:0", "--insecure"))
    given = {"token": tokens.secrets["alpha"], "tls": authority.certificate}
    # A unix socket goes without TLS; a daemon that has none is no daemon to whom it was told to use it.
    listed = f"unix:///{tmp_path}/nobody.sock,localhost:{plain},{address}"
    assert train(listed, **given).verdicts()
    with pytest.raises(plumbline.PlumblineError, match=r"expected TLS, .* found 'far\.example:1'"):
        train(f"{address},far.example:1", token=given["token"])


def test_the_plumb_command(
    serve: Callable[..., tuple[DaemonProcess, str]], authority: Authority, tokens: Tokens, tmp_path: Path
) -> None:
    _, address = serve(f"--token-file={tokens.path}")
    file = tmp_path / "token"
    file.write_text(tokens.secrets["alpha"] + "\n")

    def run(*flags: str, **environment: object) -> subprocess.CompletedProcess[str]:
        given = {"PLUMBLINE_SERVER": address, **{name: str(value) for name, value in environment.items()}}
        command = [str(plumb()), "jobs", *flags]
        return subprocess.run(command, env=given, capture_output=True, text=True, timeout=120, check=False)

    ca = f"--tls_ca={authority.certificate}"
    assert run(ca, f"--token_file={file}").returncode == 0
    assert run(PLUMBLINE_TLS_CA=authority.certificate, PLUMBLINE_TOKEN_FILE=file).returncode == 0
    assert run(ca, PLUMBLINE_TOKEN=tokens.secrets["alpha"]).returncode == 0
    assert "authorization: expected" in run(ca).stderr
    secret = tokens.secrets["alpha"]
    refused = run(ca, f"--token={secret}")
    assert refused.returncode == 1 and "no secret on a command line" in refused.stderr and secret not in refused.stderr
    assert "--token_file: cannot read" in run(ca, f"--token_file={tmp_path}/none").stderr
    assert "expected TLS" in run(f"--token_file={file}", "--server=example.org:7077").stderr
