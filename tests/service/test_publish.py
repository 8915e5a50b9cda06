"""Daemons that publish to a stream: the stream has all of what each of them has, once and in order, whatever becomes of
the server, and no job waits for that."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from authority import Authority
from nats_server import STREAM, TOKEN, NatsServer
from query_support import plumb, run_plumb
from stream_daemon import DaemonProcess, binary
from test_shared_history import metric, steps, waits_for

NewDaemon = Callable[..., DaemonProcess]


@pytest.fixture
def server() -> Iterator[NatsServer]:
    server = NatsServer()
    yield server
    server.close()


def publishing(new_daemon: NewDaemon, address: str, *flags: str) -> DaemonProcess:
    return new_daemon(f"--publish={address}", "--metrics-listen=127.0.0.1:0", *flags)


def published(daemon: DaemonProcess) -> None:
    waits_for(daemon, "an empty backlog", lambda: metric(daemon, "plumbline_publish_backlog_verdicts") == 0)


def test_two_daemons_publish_to_one_stream(new_daemon: NewDaemon, server: NatsServer) -> None:
    daemons = [publishing(new_daemon, server.url) for _ in range(2)]
    for number, daemon in enumerate(daemons):
        steps(daemon, f"job{number}", 0, 6)
    for daemon in daemons:
        published(daemon)
        assert metric(daemon, "plumbline_publish_up") == 1
        assert metric(daemon, "plumbline_publish_verdicts_total") == 6
        assert metric(daemon, "plumbline_publish_backlog_seconds") == 0
        assert metric(daemon, "plumbline_publish_replays_total") == 0
        assert "stream_published" in daemon.log()
    for number in range(2):
        assert [step for step in server.steps() if step.startswith(f"job{number}/")] == [
            f"job{number}/{step}" for step in range(6)
        ]
    messages = server.messages()
    assert len({headers["Nats-Msg-Id"] for _, headers, _ in messages}) == 12
    assert len({subject for subject, _, _ in messages}) == 2
    for verdict in server.verdicts():
        assert verdict.taps and verdict.digest
        assert verdict.node.rpartition("/")[2] in {subject.rpartition(".")[2] for subject, _, _ in messages}


def test_a_server_that_is_away_costs_nothing(new_daemon: NewDaemon, server: NatsServer) -> None:
    server.crash()
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "job", 0, 4)
    waits_for(daemon, "a line", lambda: "stream_lost" in daemon.log())
    assert "reason=unreachable" in daemon.log()
    assert metric(daemon, "plumbline_publish_up") == 0
    assert metric(daemon, "plumbline_publish_backlog_verdicts") == 4
    assert metric(daemon, 'plumbline_publish_errors_total{reason="unreachable"}') >= 1
    assert metric(daemon, 'plumbline_ready{check="store"}') == 1
    daemon.kill()  # Neither that,
    daemon.start()
    server.start()
    published(daemon)
    server.crash()  # nor this,
    steps(daemon, "job", 4, 8)
    server.start()
    published(daemon)
    daemon.terminate()
    assert daemon.wait() == 0
    daemon.start()  # nor an end loses a verdict or publishes one twice.
    steps(daemon, "job", 8, 9)
    published(daemon)
    assert server.steps() == [f"job/{step}" for step in range(9)]


def test_a_server_that_does_not_answer_delays_nothing(new_daemon: NewDaemon, server: NatsServer) -> None:
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "job", 0, 2)
    published(daemon)
    server.freeze()
    assert steps(daemon, "job", 2, 6) < 20
    daemon.terminate()
    assert daemon.wait() == 0, daemon.log()
    server.thaw()
    daemon.start()
    published(daemon)
    assert server.steps() == [f"job/{step}" for step in range(6)]


def test_a_server_that_accepts_and_says_nothing_is_left(new_daemon: NewDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        daemon = publishing(new_daemon, f"nats://127.0.0.1:{silent.getsockname()[1]}")
        steps(daemon, "job", 0, 2)
        waits_for(daemon, "a line", lambda: "stream_lost" in daemon.log())
        assert "reason=unreachable" in daemon.log()
        begun = time.monotonic()
        daemon.terminate()
        assert daemon.wait() == 0, daemon.log()
        assert time.monotonic() - begun < 20


def test_a_stream_that_was_wiped_is_filled_again(new_daemon: NewDaemon, server: NatsServer) -> None:
    daemons = [publishing(new_daemon, server.url) for _ in range(2)]
    for number, daemon in enumerate(daemons):
        steps(daemon, f"job{number}", 0, 5)
        published(daemon)
    server.crash()
    server.wipe()
    server.start()
    # The idle daemon finds out by itself; the other one has a verdict to publish.
    steps(daemons[1], "job1", 5, 6)
    waits_for(daemons[1], "all verdicts", lambda: len(server.steps()) == 11)
    for number, count in ((0, 5), (1, 6)):
        daemon = daemons[number]
        published(daemon)
        assert [step for step in server.steps() if step.startswith(f"job{number}/")] == [
            f"job{number}/{step}" for step in range(count)
        ]
        assert metric(daemon, "plumbline_publish_replays_total") == 1
        assert "was made anew" in daemon.log()


def test_a_stream_that_lost_its_end_gets_that_alone(new_daemon: NewDaemon, server: NatsServer) -> None:
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "job", 0, 3)
    published(daemon)
    server.crash()
    saved = server.directory / "saved"
    subprocess.run(["cp", "-a", server.directory / "store", saved], check=True)
    server.start()
    steps(daemon, "job", 3, 6)
    published(daemon)
    server.crash()  # As a machine does that had not written everything to its disk.
    server.wipe()
    saved.rename(server.directory / "store")
    server.start()
    waits_for(daemon, "all verdicts", lambda: len(server.steps()) == 6)
    assert server.steps() == [f"job/{step}" for step in range(6)]
    waits_for(daemon, "a replay", lambda: metric(daemon, "plumbline_publish_replays_total") == 1)
    assert "has lost messages" in daemon.log()


def set_back(daemon: DaemonProcess, published: int, last: int) -> None:
    with sqlite3.connect(daemon.directory / "data" / "verdicts.db") as database:
        database.execute("UPDATE node SET published=?, stream_last=?", (published, last))
    database.close()


def test_what_was_acknowledged_and_not_noted_is_not_published_twice(new_daemon: NewDaemon, server: NatsServer) -> None:
    # The server remembers message ids for a moment only: they are not what tells.
    made = {"name": STREAM, "subjects": ["plumbline.verdicts.*"], "storage": "file", "num_replicas": 1,
            "retention": "limits", "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
            "max_age": 0, "duplicate_window": 100_000_000}  # fmt: skip
    assert "error" not in server.request(f"$JS.API.STREAM.CREATE.{STREAM}", made)
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "job", 0, 5)
    published(daemon)
    daemon.kill()
    set_back(daemon, 2, 2)
    server.crash()
    server.start()
    daemon.start()
    steps(daemon, "job", 5, 6)
    published(daemon)
    assert server.steps() == [f"job/{step}" for step in range(6)]


def test_what_the_streams_own_limits_took_is_not_published_again(new_daemon: NewDaemon, server: NatsServer) -> None:
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "job", 0, 3)
    published(daemon)
    assert server.request(f"$JS.API.STREAM.PURGE.{STREAM}")["purged"] == 3
    steps(daemon, "job", 3, 5)
    published(daemon)
    assert server.steps() == ["job/3", "job/4"]
    assert metric(daemon, "plumbline_publish_replays_total") == 0


def test_a_copy_of_a_data_directory_is_told(new_daemon: NewDaemon, server: NatsServer) -> None:
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "job", 0, 2)
    published(daemon)
    node = server.messages()[0][0]
    acknowledged = server.request(node, b"of a copy", "Plumbline-Sequence: 2\r\nNats-Msg-Id: another")
    assert acknowledged["stream"] == STREAM
    steps(daemon, "job", 2, 4)
    waits_for(daemon, "a line", lambda: "reason=identity" in daemon.log())
    published(daemon)
    assert server.steps() == [f"job/{step}" for step in range(4)]
    assert metric(daemon, 'plumbline_publish_errors_total{reason="identity"}') == 1


def test_retention_takes_nothing_that_is_not_published(new_daemon: NewDaemon, server: NatsServer) -> None:
    server.crash()
    daemon = publishing(new_daemon, server.url, "--retention=verdicts=1")
    steps(daemon, "job", 0, 5)
    daemon.kill()
    daemon.start()  # Which is when the limits are applied first.
    server.start()
    published(daemon)
    assert server.steps() == [f"job/{step}" for step in range(5)]


def test_a_verdict_larger_than_a_message_goes_without_its_taps(new_daemon: NewDaemon) -> None:
    server = NatsServer("max_payload: 1600")
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "job", 1, 3)
    waits_for(daemon, "an empty backlog", lambda: metric(daemon, "plumbline_publish_backlog_verdicts") == 0)
    kinds = [headers["Plumbline-Message"] for _, headers, _ in server.messages()]
    turned_away = metric(daemon, "plumbline_publish_turned_away_total")
    assert len(kinds) + turned_away == 2
    assert set(kinds) <= {"plumbline.v1.Verdict; summary"}
    assert ("stream_turned_away" in daemon.log()) == (turned_away > 0)
    server.close()


def test_a_stream_of_others_is_left_alone(new_daemon: NewDaemon, server: NatsServer) -> None:
    made = {"name": STREAM, "subjects": ["orders.*"], "storage": "memory", "num_replicas": 1, "retention": "limits",
            "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0}  # fmt: skip
    assert "error" not in server.request(f"$JS.API.STREAM.CREATE.{STREAM}", made)
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "job", 0, 2)
    waits_for(daemon, "a line", lambda: "reason=refused" in daemon.log())
    assert "found one of other subjects" in daemon.log() and server.messages() == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nats://plumbline:hunter2@localhost:4222", "without a user or password"),
        ("nats://localhost:4222,tls://hunter2@localhost", "without a user or password"),
        ("http://localhost/hunter2", "expected nats://HOST:PORT or tls://HOST:PORT"),
        ("nats://localhost:hunter2", "no port"),
        ("nats://localhost,tls://localhost", "both nats:// and tls://"),
        ("nats://", "no host"),
    ],
)
def test_an_address_that_is_none_is_refused(address: str, said: str) -> None:
    for more in ([], ["--check-config"]):
        ran = subprocess.run([binary(), f"--publish={address}", *more], capture_output=True, text=True, check=False)
        assert ran.returncode == 1
        assert ran.stderr.startswith("plumblined: --publish: expected ") and said in ran.stderr
        assert "hunter2" not in ran.stderr and ran.stderr.count("\n") == 1


def checked(*flags: str, line: str = "") -> str:
    environment = {**os.environ, "PLUMBLINE_PUBLISH_CREDENTIALS": line}
    ran = subprocess.run(
        [binary(), *flags, "--check-config"], env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode == 0) == (not ran.stderr)
    return ran.stderr


def test_credentials_are_checked(tmp_path: Path) -> None:
    line = tmp_path / "credentials"
    line.write_text("plumbline:hunter2\n")
    assert not checked("--publish=nats://localhost", f"--publish-credentials={line}")
    assert not checked("--publish=tls://nats.example.org", f"--publish-credentials={line}")
    refused = checked("--publish=nats://nats.example.org", f"--publish-credentials={line}")
    assert "expected tls://" in refused and "hunter2" not in refused
    assert "expected tls://" in checked("--publish=nats://nats.example.org", line="hunter2")
    assert "cannot read" in checked("--publish=nats://localhost", "--publish-credentials=/nowhere")
    assert "with its key" in checked("--publish=tls://localhost", f"--publish-cert={line}")
    assert "expected tls://" in checked("--publish=nats://localhost", f"--publish-ca={line}")
    assert "expected an address" in checked(f"--publish-credentials={line}")


def test_a_wrong_token_is_said_and_a_right_one_is_taken_without_a_restart(
    new_daemon: NewDaemon, tmp_path: Path
) -> None:
    server = NatsServer(f'authorization {{ token: "{TOKEN}" }}', token=TOKEN)
    file = tmp_path / "token"
    file.write_text("hunter2")
    daemon = publishing(new_daemon, server.url, f"--publish-credentials={file}")
    steps(daemon, "job", 0, 2)
    waits_for(daemon, "a line", lambda: "stream_lost" in daemon.log())
    assert "reason=refused" in daemon.log()
    assert TOKEN not in daemon.log() and "hunter2" not in daemon.log()
    file.write_text(TOKEN)
    published(daemon)
    assert server.steps() == ["job/0", "job/1"]
    server.close()


def test_few_rights_are_enough(new_daemon: NewDaemon, tmp_path: Path) -> None:
    rights = '{ publish: ["plumbline.verdicts.*", "$JS.API.STREAM.>"], subscribe: "_INBOX.>" }'
    server = NatsServer(
        f'authorization {{ users: [ {{ user: daemon, password: "{TOKEN}", permissions: {rights} }} ] }}'
    )
    file = tmp_path / "password"
    file.write_text(f"daemon:{TOKEN}")
    daemon = publishing(new_daemon, server.url, f"--publish-credentials={file}")
    steps(daemon, "job", 0, 2)
    published(daemon)
    assert metric(daemon, "plumbline_publish_verdicts_total") == 2
    server.close()


def test_tls_believes_the_authorities_that_are_named_alone(new_daemon: NewDaemon, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair, wrong = authority.signs("nats", "localhost"), authority.signs("elsewhere", "nats.example.org")
    for of_server, ca, works in ((pair, authority, True), (pair, other, False), (wrong, authority, False)):
        server = NatsServer(
            f'tls {{ cert_file: "{of_server.certificate}", key_file: "{of_server.key}" }}', scheme="tls"
        )
        address = f"tls://localhost:{server.port}"
        daemon = publishing(new_daemon, address, f"--publish-ca={ca.certificate}")
        steps(daemon, "job", 0, 2)
        if works:
            published(daemon)
            asked = ["follow", f"--publish={address}", f"--tls_ca={ca.certificate}", "--past", "--json", "--count=2"]
            seen = run_plumb(daemon, *asked)
            assert [json.loads(line)["step"] for line in seen.stdout.splitlines()] == ["0", "1"], seen.stderr
        else:
            waits_for(daemon, "a line", lambda: "stream_lost" in daemon.log())  # noqa: B023
            assert metric(daemon, "plumbline_publish_backlog_verdicts") == 2
        server.close()


def test_a_server_that_asks_for_certificates_gets_one(new_daemon: NewDaemon, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, own = authority.signs("nats", "localhost"), authority.signs("daemon")
    server = NatsServer(
        f'tls {{ cert_file: "{pair.certificate}", key_file: "{pair.key}", ca_file: "{authority.certificate}", '
        "verify: true }",
        scheme="tls",
    )
    flags = [f"--publish-ca={authority.certificate}"]
    stranger = publishing(new_daemon, f"tls://localhost:{server.port}", *flags)
    flags += [f"--publish-cert={own.certificate}", f"--publish-key={own.key}"]
    daemon = publishing(new_daemon, f"tls://localhost:{server.port}", *flags)
    steps(daemon, "job", 0, 2)
    published(daemon)
    assert metric(daemon, "plumbline_publish_verdicts_total") == 2
    waits_for(stranger, "a line", lambda: "stream_lost" in stranger.log())
    server.close()


class Follow:
    """A `plumb follow --json` that runs, as its lines come."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [plumb(), "follow", "--json", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def next(self) -> str:
        assert self.process.stdout is not None
        verdict = json.loads(self.process.stdout.readline())
        return f"{verdict['job']}/{verdict['step']}"

    def complaint(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def test_follow_shows_each_verdict_once(new_daemon: NewDaemon, server: NatsServer) -> None:
    daemons = [publishing(new_daemon, server.url) for _ in range(2)]
    for number, daemon in enumerate(daemons):
        steps(daemon, f"job{number}", 1, 3)
        published(daemon)
    follow = Follow(f"--publish={server.url}", "--past")
    assert sorted(follow.next() for _ in range(4)) == ["job0/1", "job0/2", "job1/1", "job1/2"]
    # A message of a stranger: a skipped line of standard error, and what follows is shown.
    assert server.request("plumbline.verdicts.stranger", b"\x00\x01")["stream"] == STREAM
    assert "is not ours, and is skipped" in follow.complaint()
    server.crash()
    assert "it is tried again" in follow.complaint()
    server.wipe()
    server.start()
    steps(daemons[0], "job0", 3, 4)
    assert follow.next() == "job0/3", "what is published again was shown before"
    assert follow.end() == 2, "the worst verdict was TYPE_II"


def test_follow_is_told_the_address_by_the_daemon(new_daemon: NewDaemon, server: NatsServer) -> None:
    daemon = publishing(new_daemon, server.url)
    steps(daemon, "first", 0, 2)
    steps(daemon, "second", 1, 3)
    published(daemon)
    shown = run_plumb(daemon, "follow", "second", "--past", "--count=2")
    assert shown.returncode == 0 and "second" in shown.stdout and "first" not in shown.stdout, shown.stderr
    assert len(shown.stdout.splitlines()) == 2
    silent = new_daemon()
    refused = run_plumb(silent, "follow")
    assert refused.returncode == 1 and "publishes to no stream" in refused.stderr
    for arguments, said in (
        (["a", "b"], "expected a job or nothing"),
        (["--publish=nats://u:hunter2@localhost"], "without a user or password"),
        (["--publish=nats://127.0.0.1:1"], "UNAVAILABLE"),
        (["--verdict=maybe"], "--verdict"),
    ):
        refused = run_plumb(daemon, "follow", *arguments)
        assert refused.returncode == 1 and said in refused.stderr and "hunter2" not in refused.stderr
