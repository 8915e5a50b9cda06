"""A real Prometheus scrapes a real daemon under load, and every query of the dashboard finds something.

Grafana itself is not run: its dashboard is checked for structure, and its queries are asked of Prometheus as Grafana
would ask them, with its variables put in.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import grpc
import pytest
from observability import (
    AWAY,
    DATASOURCE_YML,
    PROMETHEUS_YML,
    RULES_YML,
    Load,
    Prometheus,
    dashboard,
    get,
    panels,
    put_in,
    queries,
    rules,
    rules_tested,
)
from query_support import metrics_address, query_stub, send, type_i, type_ii
from stream_client import Client, StepFrames
from stream_daemon import DaemonProcess
from test_stream_service import health

from plumbline.v1 import query_pb2


def test_the_dashboard_is_well_formed() -> None:
    board = dashboard()
    assert board["uid"] == "plumbline" and board["schemaVersion"] >= 37
    everything = board["panels"]
    numbers = [panel["id"] for panel in everything]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        assert at["w"] > 0 and at["h"] > 0 and at["x"] >= 0 and at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells
    source = re.search(r"^\s*uid: (\S+)", DATASOURCE_YML.read_text(), re.MULTILINE)
    assert source
    for panel in panels():
        assert panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == source.group(1)
        assert panel["targets"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
        for target in panel["targets"]:
            assert target["expr"].strip() and target["datasource"]["uid"] == source.group(1)
    for variable in board["templating"]["list"]:
        assert variable["datasource"]["uid"] == source.group(1)


def test_the_dashboard_shows_every_family(scraped: str) -> None:
    families = set(re.findall(r"^# TYPE (plumbline_\w+)", scraped, re.MULTILINE))
    assert len(families) == 45
    shown = " ".join(expression for _, expression in queries())
    assert {family for family in families if family not in shown} == set()


def test_the_configuration_is_what_prometheus_takes() -> None:
    subprocess.run(["promtool", "check", "config", str(PROMETHEUS_YML)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    policy = tmp_path_factory.mktemp("daemon") / "policy"
    policy.write_text('quotas { projects: "*" streams: 1000 }')
    daemon = DaemonProcess("--metrics-listen=127.0.0.1:0", "--memory-limit=64MiB", f"--policy={policy}", *AWAY)
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def load(daemon: DaemonProcess) -> Iterator[Load]:
    load = Load(daemon)
    yield load
    load.stop()


@pytest.fixture(scope="module")
def prometheus(daemon: DaemonProcess, load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prometheus = Prometheus(metrics_address(daemon), tmp_path_factory.mktemp("prometheus"))
    try:
        prometheus.wait_for_rates()
        yield prometheus
    finally:
        prometheus.close()


@pytest.fixture(scope="module")
def scraped(daemon: DaemonProcess, prometheus: Prometheus) -> str:
    return get(f"http://{metrics_address(daemon)}/metrics")


@pytest.mark.parametrize(("title", "expression"), queries())
def test_every_panel_finds_something(title: str, expression: str, prometheus: Prometheus) -> None:
    found = prometheus.wait_for(put_in(expression))
    values = [float(series["value"][1]) for series in found]
    assert any(math.isfinite(value) for value in values), f"{title}: {found}"


def test_the_numbers_are_the_loads(prometheus: Prometheus, scraped: str) -> None:
    """What Prometheus has is what the daemon was sent: outcomes in equal numbers, a gap and a refusal for each."""
    assert prometheus.ask('up{job="plumblined"}')[0]["value"][1] == "1"

    def count(series: str) -> int:
        found = re.search(rf"^{re.escape(series)} (\S+)$", scraped, re.MULTILINE)
        return int(float(found.group(1))) if found else 0

    labels = 'job="streams",project="default"'
    type_ii_count = sum(
        int(float(value))
        for value in re.findall(
            rf'^plumbline_verdicts_total{{[^}}]*{labels},verdict="TYPE_II"}} (\S+)$', scraped, re.MULTILINE
        )
    )
    assert type_ii_count >= 2
    for outcome in ("missed", "refused"):
        steps = count(f'plumbline_steps_total{{job="streams",outcome="{outcome}",project="default"}}')
        assert abs(steps - type_ii_count) <= 1, outcome
    assert count('plumbline_dropped_steps_total{reason="queue_full"}') >= type_ii_count - 1
    assert count('plumbline_ops_total{coverage="opaque"}') >= type_ii_count - 1
    assert count('plumbline_ingest_bytes_total{transport="grpc"}') > 0


def test_who_streams_and_what_waits_for_others(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon("--metrics-listen=127.0.0.1:0", "--memory-limit=64MiB", "--reference-timeout=300s")
    client = Client(daemon.address)

    def value(series: str) -> float:
        page = get(f"http://{metrics_address(daemon)}/metrics")
        [found] = re.findall(rf"^plumbline_{re.escape(series)} (\S+)$", page, re.MULTILINE)
        return float(found)

    assert value("streams") == 0 and 0 < value("memory_limit_bytes") <= 64 << 20
    pairs = client.stream("candidate", reference_run="reference")
    parts = [client.stream("sharded", rank=rank, ranks=2) for rank in range(2)]
    for stream, step in ((pairs, 0), (parts[0], 0), (parts[0], 1)):
        stream.send(*type_i(step).frames())
        stream.received()
    deadline = time.monotonic() + 60
    while value('steps_waiting{for="ranks"}') != 2 or value('steps_waiting{for="reference"}') != 1:
        assert time.monotonic() < deadline
    assert value("streams") == 3
    for step in range(2):
        parts[1].send(*type_i(step).frames())
        parts[1].next("verdict")
    assert value("join_seconds_count") == 2
    send(client.stream("reference"), type_i(0))
    pairs.next("verdict")
    assert value('steps_waiting{for="ranks"}') == value('steps_waiting{for="reference"}') == 0
    client.close()


def test_the_alert_for_type_ii_fires(prometheus: Prometheus) -> None:
    (alert,) = prometheus.wait_for('ALERTS{alertname="PlumblineTypeII",alertstate="firing"}')
    assert (alert["metric"]["project"], alert["metric"]["job"]) == ("default", "streams")


def test_each_alert_is_tested_and_has_a_page_of_the_runbook() -> None:
    assert rules_tested() == rules()
    pages = re.findall(r"^## (\w+)$", (RULES_YML.parent / "RUNBOOK.md").read_text(), re.MULTILINE)
    assert pages == rules()
    addresses = re.findall(r"runbook_url: '(.*)'", RULES_YML.read_text())
    assert addresses == [f"RUNBOOK.md#{rule.lower()}" for rule in rules()]


def test_the_alert_fires_on_a_jobs_first_type_ii(daemon: DaemonProcess, prometheus: Prometheus) -> None:
    """Also where the first scrape that sees the job sees its TYPE_II already."""
    client = Client(daemon.address)
    for job, steps in (("one-step", [type_ii(0)]), ("later", [type_i(0), type_ii(1)])):
        stream = client.stream(job=job)
        send(stream, *steps)
        stream.close()
        prometheus.wait_for(f'ALERTS{{alertname="PlumblineTypeII",alertstate="firing",job="{job}"}}')
    client.close()


def test_series_of_a_job_are_there_before_its_first_verdict(daemon: DaemonProcess) -> None:
    client = Client(daemon.address)
    client.open(job="waits")
    page = get(f"http://{metrics_address(daemon)}/metrics")
    assert 'plumbline_verdicts_total{grade="PROVEN",job="waits",project="default",verdict="TYPE_II"} 0' in page
    assert 'plumbline_last_type_ii_timestamp_seconds{job="waits",project="default"} 0' in page
    assert 'plumbline_steps_total{job="waits",outcome="refused",project="default"} 0' in page
    client.close()


def test_build_info_tells_the_commit(scraped: str) -> None:
    assert re.search(r'^plumbline_build_info\{backend="cpu",commit="(unknown|[0-9a-f]{12})",', scraped, re.MULTILINE)


def test_the_process_has_the_names_that_all_processes_have(daemon: DaemonProcess, scraped: str) -> None:
    """They are the kernel's numbers: what psutil would read of the same process."""
    assert daemon.process
    values = {name: float(value) for name, value in re.findall(r"^(process_\w+) (\S+)$", scraped, re.MULTILINE)}
    stat = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    assert 0.2 < values["process_resident_memory_bytes"] / (int(stat[21]) * resource.getpagesize()) < 5
    assert values["process_virtual_memory_bytes"] > values["process_resident_memory_bytes"]
    assert 0 < values["process_cpu_seconds_total"] <= (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    assert 10 < values["process_open_fds"] < values["process_max_fds"]
    assert abs(values["process_start_time_seconds"] - started_at(daemon)) < 30
    assert re.search(r"^# TYPE process_cpu_seconds_total counter$", scraped, re.MULTILINE)


def started_at(daemon: DaemonProcess) -> float:
    """When the daemon wrote its first line."""
    first = daemon.log().splitlines()[0]
    found = re.search(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", first)
    assert found, first
    return datetime.fromisoformat(found.group()).replace(tzinfo=timezone.utc).timestamp()


def test_calls_are_counted_by_method_and_status(new_daemon: Callable[..., DaemonProcess]) -> None:
    """Of a daemon that nobody else asks."""
    daemon = new_daemon("--metrics-listen=127.0.0.1:0")
    page = f"http://{metrics_address(daemon)}/metrics"

    def counts(service: str, method: str) -> dict[str, int]:
        """By status, those that began under "started", those that were timed under "timed"."""
        of_method = re.escape(f'grpc_method="{method}",grpc_service="plumbline.v1.{service}"')
        text = get(page)
        found = dict(re.findall(rf'^grpc_server_handled_total{{grpc_code="(\w+)",{of_method},.*}} (\S+)$', text, re.M))
        for name, series in (("started", "started_total"), ("timed", "handling_seconds_count")):
            if value := re.search(rf"^grpc_server_{series}{{{of_method},.*}} (\S+)$", text, re.M):
                found[name] = value.group(1)
        return {name: int(value) for name, value in found.items() if value != "0"}

    client = Client(daemon.address)
    stream = client.stream(job="counted")
    send(stream, type_i(0))
    assert counts("AuditService", "Audit") == {"started": 1}
    stub = query_stub(client)
    stub.GetJob(query_pb2.GetJobRequest(job="counted"))
    with pytest.raises(grpc.RpcError):
        stub.GetJob(query_pb2.GetJobRequest(job="no-such-job"))
    assert counts("VerdictService", "GetJob") == {"started": 2, "timed": 2, "OK": 1, "NotFound": 1}
    stream.close()
    assert counts("AuditService", "Audit") == {"started": 1, "OK": 1}
    # A method's name is the caller's choice: those that there are not share one series.
    for name in ("one", "two"):
        with pytest.raises(grpc.RpcError) as raised:
            client.channel.unary_unary(f"/no.such.Service/{name}")(b"")
        assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "no.such.Service" not in get(page)
    client.close()


def test_health_and_readiness(daemon: DaemonProcess) -> None:
    for page in ("healthz", "readyz"):
        assert get(f"http://{metrics_address(daemon)}/{page}") == "ok\n"
    client = Client(daemon.address)
    assert health(client) == "SERVING"
    client.close()


def test_a_daemon_that_cannot_do_its_work_is_alive_but_not_ready(new_daemon: Callable[..., DaemonProcess]) -> None:
    """A reserve that no disk has."""
    daemon = new_daemon("--metrics-listen=127.0.0.1:0", "--disk-reserve=4096T", "--log-format=json")
    while '"event":"not_ready"' not in daemon.log():
        assert daemon.alive()
    started = json.loads(daemon.log().splitlines()[0])
    address = re.search(r"metrics on ([^;\s]+)", started["message"])
    assert address
    assert get(f"http://{address.group(1)}/healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError) as unready:
        get(f"http://{address.group(1)}/readyz")
    assert unready.value.code == 503 and unready.value.read().startswith(b"disk: ")
    assert 'plumbline_ready{check="disk"} 0' in get(f"http://{address.group(1)}/metrics")
    assert 'plumbline_ready{check="store"} 1' in get(f"http://{address.group(1)}/metrics")
    client = Client(daemon.address)
    assert health(client) == "NOT_SERVING"
    client.close()


def test_the_log_is_one_object_a_line(new_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = new_daemon("--log-format=json")
    client = Client(daemon.address)
    stream = client.stream(job="logged")
    broken = StepFrames(1)
    broken.op.op.arguments[0].tensor.value = 99
    send(stream, type_ii(0))
    stream.send(*broken.frames())
    stream.next("error")
    stream.close()
    with pytest.raises(grpc.RpcError):
        client.open(job="a job")
    query_stub(client).DeleteJob(query_pb2.DeleteJobRequest(job="logged"))
    client.close()
    assert daemon.process
    daemon.process.send_signal(signal.SIGHUP)
    while '"event":"reloaded"' not in daemon.log():
        assert daemon.alive()
    daemon.terminate()
    assert daemon.wait() == 0
    lines = [json.loads(line) for line in daemon.log().splitlines()]
    assert all({"time", "level"} <= set(line) for line in lines)
    events = {line["event"]: line for line in lines if "event" in line}
    run = "default/logged/run/0"
    assert events["run_opened"]["run"] == run and events["run_opened"]["owner"].startswith("uid:")
    assert events["type_ii"]["verdict"] == f"{run}/0" and events["type_ii"]["level"] == "warning"
    assert events["step_refused"]["step"] == f"{run}/1" and events["step_refused"]["code"] == "INVALID_ARGUMENT"
    assert events["run_closed"]["run"] == run and events["run_closed"]["status"] == "OK"
    assert events["run_refused"]["run"] == "default/a job/run/0"
    assert events["job_deleted"] | {"time": ""} == {
        "time": "",
        "level": "info",
        "event": "job_deleted",
        "job": "default/logged",
        "by": events["run_opened"]["owner"],
        "verdicts": "1",
        "traces": "1",
    }
    assert events["started"]["message"].startswith("plumblined ") and daemon.address in events["started"]["message"]
    assert events["reloaded"] and events["draining"]["message"].startswith("SIGTERM: ")
    assert [line["event"] for line in (lines[0], lines[-1])] == ["started", "stopped"]
