"""Nothing that was acknowledged is lost, and nothing that is lost is silent. `durability` holds the rounds, of which a
report runs many and this a few."""

from __future__ import annotations

from collections.abc import Callable

import durability
import pytest
from query_support import send, type_i, type_ii
from stream_client import Client, StepFrames
from stream_daemon import DaemonProcess


def test_kill9_loses_no_acknowledged_verdict() -> None:
    tally = durability.kill9(rounds=4, seed=1)
    assert (tally.rounds, tally.acked_lost, tally.duplicates) == (4, 0, 0), tally.notes
    assert tally.acked >= 4


def test_a_full_disk_leaves_no_silent_gap() -> None:
    try:
        tally = durability.disk_full(rounds=3, seed=1)
    except PermissionError as refused:
        pytest.fail(f"a small file system cannot be mounted here, which this test needs: {refused}")
    assert (tally.acked_lost, tally.duplicates, tally.silent_gaps) == (0, 0, 0), tally.notes
    assert tally.rounds == 3 and tally.acked > 0 and tally.refused > 0


def test_a_full_disk_is_answered_with_a_retry_and_logged(new_daemon: Callable[..., DaemonProcess]) -> None:
    try:
        with durability.small_disk() as disk:
            daemon = new_daemon(f"--data-dir={disk}/data", "--disk-reserve=0")
            client = Client(daemon.address)
            stream = client.stream()
            send(stream, type_i(0))
            durability.fill(disk / "filler")
            stream.send(*type_i(1).frames())
            error = stream.next("error")
            assert error.step == 1 and "full" in error.status.message
            assert [detail.type_url.rsplit(".", 1)[1] for detail in error.status.details] == [
                "QuotaFailure",
                "RetryInfo",
            ]
            assert "database or disk is full; 1 records were refused so far" in daemon.log()
            (disk / "filler").unlink()
            send(stream, type_i(2), type_i(1))
            assert "takes records again" in daemon.log()
            assert stream.close().name == "OK"
            client.close()
            daemon.terminate()
            assert daemon.wait() == 0
    except PermissionError as refused:
        pytest.fail(f"a small file system cannot be mounted here, which this test needs: {refused}")


def test_traces_leave_the_disks_reserve_to_verdicts(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon("--disk-reserve=1000TiB")
    client = Client(daemon.address)
    verdict: StepFrames = type_ii(0)
    [judged] = send(client.stream(), verdict)
    assert any("--disk-reserve keeps" in note for note in judged.notes), judged.notes
    client.close()
