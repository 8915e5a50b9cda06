"""Verdicts of a real daemon as a Parquet file."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from query_support import inconclusive, query_stub, send, type_i, type_ii
from stream_client import Client
from stream_daemon import ROOT, DaemonProcess

from plumbline import export
from plumbline.names import short_name
from plumbline.v1 import query_pb2, verdict_pb2

NOW = ["--before", "2100-01-01"]


def verdicts(daemon: DaemonProcess) -> list[verdict_pb2.Verdict]:
    client = Client(daemon.address)
    try:
        return list(query_stub(client).ListVerdicts(query_pb2.ListVerdictsRequest(page_size=1000)).verdicts)
    finally:
        client.close()


@pytest.fixture
def daemon(new_daemon: Callable[..., DaemonProcess]) -> DaemonProcess:
    """One that has seven verdicts, of three kinds."""
    made = new_daemon()
    client = Client(made.address)
    stream = client.stream("exported")
    for step in range(5):
        send(stream, type_i(step))
    send(stream, type_ii(5))
    send(stream, inconclusive(6))
    client.close()
    return made


def exported(daemon: DaemonProcess, output: Path, *more: str) -> pyarrow.Table:
    assert export.main(["--server", daemon.address, "-o", str(output), *(more or NOW)]) == 0
    return pyarrow.parquet.read_table(output)


def test_every_verdict_is_in_the_file_once(
    daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PAGE_ROWS", 2)
    monkeypatch.setattr(export, "GROUP_ROWS", 4)
    table = exported(daemon, tmp_path / "v.parquet")
    asked = verdicts(daemon)
    assert table.column("id").to_pylist() == [verdict.id for verdict in asked]
    assert pyarrow.parquet.ParquetFile(tmp_path / "v.parquet").num_row_groups == 2  # Seven rows, by four at a time.
    assert table.schema.equals(export.schema(pyarrow))
    rows = {row["step"]: row for row in table.to_pylist()}
    for verdict in asked:
        row = rows[verdict.step]
        assert row["verdict"] == short_name(verdict_pb2.Outcome, verdict.verdict) and row["job"] == verdict.job
        assert row["time"] == verdict.time.ToDatetime(tzinfo=datetime.timezone.utc)
        assert row["operations"] == verdict.coverage.operations and row["digest"] == verdict.digest
        assert row["surprise"] == (verdict.surprise if verdict.HasField("surprise") else None)
        assert row["deviation"] == (None if verdict.deviation != verdict.deviation else verdict.deviation)
        assert row["advice"] == list(verdict.advice) and row["suspect_op"] == verdict.suspect.op
    assert {row["verdict"] for row in rows.values()} == {"TYPE_I", "TYPE_II", "INCONCLUSIVE"}
    assert rows[5]["suspect_op"] and rows[5]["sentence"] and rows[5]["surprise"] == float("inf")


def test_windows_follow_one_another_without_gap_or_overlap(daemon: DaemonProcess, tmp_path: Path) -> None:
    times = [verdict.time.ToDatetime(tzinfo=datetime.timezone.utc) for verdict in verdicts(daemon)]
    cut = times[3].isoformat()
    first = exported(daemon, tmp_path / "first.parquet", "--before", cut)
    second = exported(daemon, tmp_path / "second.parquet", "--after", cut, *NOW)
    assert first.column("step").to_pylist() == [step for step in range(7) if times[step] < times[3]]
    assert first.column("step").to_pylist() + second.column("step").to_pylist() == list(range(7))
    none = exported(daemon, tmp_path / "none.parquet", "--job", "another", *NOW)
    assert none.num_rows == 0 and none.schema.equals(export.schema(pyarrow))


def test_by_default_nothing_is_taken_that_is_not_settled(
    daemon: DaemonProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--server", daemon.address, "-o"]
    assert export.main([*command, str(tmp_path / "early.parquet")]) == 0
    said = re.search(r"(\d+) verdicts; what comes later: --after (\S+)", capsys.readouterr().out)
    assert said
    following = exported(daemon, tmp_path / "later.parquet", "--after", said[2], *NOW)
    assert int(said[1]) + following.num_rows == 7


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        assert export.main(list(arguments)) == 1
    except SystemExit as ended:
        assert ended.code == 2
    return capsys.readouterr().err


def test_what_cannot_be_done_is_said(
    daemon: DaemonProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "v.parquet"
    at = ("--server", daemon.address, "-o")
    assert "cannot be written: No such file" in refused(capsys, *at, str(tmp_path / "no" / "v.parquet"))
    output.write_text("mine")
    assert "is there already" in refused(capsys, *at, str(output)) and output.read_text() == "mine"
    output.unlink()
    assert "found 'yesterday'" in refused(capsys, *at, str(output), "--after", "yesterday")
    assert "expected a time before" in refused(
        capsys, *at, str(output), "--after", "2026-01-02", "--before", "2026-01-01"
    )
    assert "expected one address" in refused(capsys, "--server", "unix:/a,unix:/b", "-o", str(output))
    nobody = f"unix:{tmp_path}/nobody.sock"
    assert nobody in refused(capsys, "--server", nobody, "-o", str(output))
    assert list(tmp_path.iterdir()) == []  # No part of a file either.


def test_a_daemon_that_goes_away_leaves_no_file(
    daemon: DaemonProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PAGE_ROWS", 2)
    monkeypatch.setattr(export, "GROUP_ROWS", 2)
    pages = export.pages

    def interrupted(*arguments: object) -> object:
        for page in pages(*arguments):  # type: ignore[arg-type]
            yield page
            daemon.kill()

    monkeypatch.setattr(export, "pages", interrupted)
    assert daemon.address in refused(capsys, "--server", daemon.address, "-o", str(tmp_path / "v.parquet"), *NOW)
    assert list(tmp_path.iterdir()) == []
    daemon.start()


def test_a_full_disk_leaves_no_file(
    daemon: DaemonProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet.ParquetWriter, "write_table", full)
    said = refused(capsys, "--server", daemon.address, "-o", str(tmp_path / "v.parquet"), *NOW)
    assert "cannot be written: No space left on device" in said
    assert list(tmp_path.iterdir()) == []


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_the_command_is_there_and_says_what_it_needs(daemon: DaemonProcess, tmp_path: Path) -> None:
    command = ("-m", "plumbline", "export-verdicts", "-o", str(tmp_path / "v.parquet"), *NOW)
    done = run(*command, PLUMBLINE_SERVER=daemon.address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("7 verdicts; what comes later: --after 2100-01-01T00:00:00+00:00\n")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pyarrow.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "v.parquet").unlink()
    without = run(*command, PLUMBLINE_SERVER=daemon.address, PYTHONPATH=path)
    assert without.returncode == 1
    assert "needs pyarrow: pip install 'plumbline[parquet]'" in without.stderr
    usage = run("-m", "plumbline")
    assert usage.returncode == 2 and "export-verdicts" in usage.stderr


def test_the_columns_are_documented() -> None:
    """By the type that they have."""
    told = (ROOT / "client/README.md").read_text().partition("| type in Parquet |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in told.splitlines()[2:]]
    names = {
        "string": "string",
        "list of string": "list<element: string>",
        "int32": "int32",
        "int64": "int64",
        "double, null where it was not asked": "double",
        "bool": "bool",
        "timestamp in microseconds of UTC": "timestamp[us, tz=UTC]",
    }
    documented = {column: names[kind.strip()] for kind, text in rows for column in re.findall(r"`(\w+)`", text)}
    types = {field.name: re.sub("list<item", "list<element", str(field.type)) for field in export.schema(pyarrow)}
    assert documented == types
