"""Golden runs that one daemon recorded, at another that shares its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from postgres_server import PostgresServer
from query_support import run_plumb
from stream_daemon import DaemonProcess
from test_golden import Step, accumulated, forgotten, plain, train
from test_shared_history import waits_for

import plumbline

NewDaemon = Callable[..., DaemonProcess]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def pair(server: PostgresServer) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    daemons = [DaemonProcess(f"--store={server.url}") for _ in range(2)]
    yield daemons[0], daemons[1]
    for daemon in daemons:
        daemon.close()


def recorded(server: PostgresServer, at: DaemonProcess, run: str, steps: int = 1) -> None:
    verdicts, errors = train(at, plain, steps, record_golden=run, run=run)
    assert not errors and not any("golden" in note for verdict in verdicts.values() for note in verdict.notes)
    counted = f"SELECT count(*) FROM golden_steps WHERE name='{run}'"
    waits_for(at, "its golden steps in the history", lambda: server.rows(counted) == [str(steps)])


def says(verdict: plumbline.Verdict) -> tuple[object, ...]:
    return (
        *(verdict.verdict, verdict.grade, verdict.cause, verdict.sentence, verdict.margin, str(verdict.surprise)),
        *(verdict.math_resolution, verdict.deciding_tap, verdict.suspect_detail, verdict.reference, verdict.notes),
    )


@pytest.mark.parametrize("step", [plain, accumulated, forgotten])
def test_the_verdict_is_that_of_the_node_that_recorded_it(
    server: PostgresServer, pair: tuple[DaemonProcess, DaemonProcess], run: str, step: Step
) -> None:
    recorded(server, pair[0], run)
    at_home, elsewhere = (train(daemon, step, golden=run) for daemon in pair)
    assert not at_home[1] and not elsewhere[1]
    assert says(elsewhere[0][0]) == says(at_home[0][0])
    assert elsewhere[0][0].verdict == ("TYPE_II" if step is forgotten else "TYPE_I")
    assert elsewhere[0][0].reference == f"golden {run} step 0"


def test_other_leaves_are_refused_as_at_home(
    server: PostgresServer, pair: tuple[DaemonProcess, DaemonProcess], run: str
) -> None:
    recorded(server, pair[0], run)
    _, errors = train(pair[1], plain, golden=run, seed=1)
    assert f"expected the leaves of golden run '{run}' at step 0" in str(errors[0])
    _, errors = train(pair[1], plain, 2, golden=run)
    assert f"step 1 of rank 0 is not in golden run '{run}'" in str(errors[1])


def test_a_name_is_of_one_run_on_all_nodes(
    server: PostgresServer, pair: tuple[DaemonProcess, DaemonProcess], run: str
) -> None:
    recorded(server, pair[0], run)
    with pytest.raises(plumbline.PlumblineError, match=f"was recorded by run golden/{run}: choose another name"):
        train(pair[1], plain, record_golden=run, run=f"{run}-another")


def test_one_that_was_removed_at_home_is_nowhere(
    server: PostgresServer, pair: tuple[DaemonProcess, DaemonProcess], run: str
) -> None:
    recorded(server, pair[0], run)
    assert run_plumb(pair[0], "golden", "remove", run).returncode == 0
    gone = f"SELECT count(*) FROM golden_runs WHERE name='{run}'"
    waits_for(pair[0], "that it is removed there", lambda: server.rows(gone) == ["0"])
    with pytest.raises(plumbline.PlumblineError, match="neither here nor in the shared history"):
        train(pair[1], plain, golden=run)


def test_a_history_that_is_away_leaves_the_question_open(new_daemon: NewDaemon, run: str) -> None:
    server = PostgresServer()
    try:
        home, other = (new_daemon(f"--store={server.url}", "--metrics-listen=127.0.0.1:0") for _ in range(2))
        recorded(server, home, run, 2)
        asked = False

        def after_the_first(model: object, optimizer: object, x: object, y: object) -> None:
            nonlocal asked
            if asked:
                server.crash()
            asked = True
            plain(model, optimizer, x, y)  # type: ignore[arg-type]

        verdicts, errors = train(other, after_the_first, 2, golden=run)
        assert not errors and verdicts[0].verdict == "TYPE_I"
        assert (verdicts[1].verdict, verdicts[1].cause) == ("INCONCLUSIVE", "REFERENCE_MISSING")
        assert "the shared history is away" in verdicts[1].sentence
        at_home, errors = train(home, plain, 2, golden=run)
        assert not errors and at_home[1].verdict == "TYPE_I", "what a node has it has without the history"
    finally:
        server.close()
