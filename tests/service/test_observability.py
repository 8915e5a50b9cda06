"""A real Prometheus scrapes a real daemon under load, and every query of the dashboard finds something.

Grafana itself is not run: its dashboard is checked for structure, and its queries are asked of Prometheus as Grafana
would ask them, with its variables put in.
"""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from query_support import inconclusive, metrics_address, send, type_i, type_ii
from stream_client import Client, StepFrames
from stream_daemon import ROOT, DaemonProcess

import plumbline

DASHBOARD = ROOT / "deploy/grafana/dashboards/plumbline.json"
PROMETHEUS_YML = ROOT / "deploy/prometheus/prometheus.yml"
DATASOURCE_YML = ROOT / "deploy/grafana/provisioning/datasources/plumbline.yml"
WAIT_S_MAX = 120.0
# Grafana's variables: what it would put in for a range of a minute, and for "All".
VARIABLES = {"$__rate_interval": "20s", "$__range": "60s", "$project": ".*", "$job": ".*"}


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """Title and expression of every target."""
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


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
    assert len(families) == 20
    shown = " ".join(expression for _, expression in queries())
    assert {family for family in families if family not in shown} == set()


def test_the_configuration_is_what_prometheus_takes() -> None:
    subprocess.run(["promtool", "check", "config", str(PROMETHEUS_YML)], check=True, capture_output=True)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--metrics-listen=127.0.0.1:0", "--memory-limit=64MiB")
    yield daemon
    daemon.close()


class Load:
    """Two jobs that never stop: a training run through the Python client, and streams of every outcome."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = daemon
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guard, args=(job,)) for job in (self._train, self._stream)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._errors, self._errors

    def _guard(self, job: Any) -> None:
        try:
            job()
        except BaseException as error:  # Told by stop(), in the test's own thread.
            self._errors.append(error)

    def _train(self) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with plumbline.watch(model, optimizer, self._daemon.address, job="training", every=1) as audit:
            while not self._stop.wait(0.3):
                with audit.step():
                    loss = ((model(torch.randn(4, 8)) - 1) ** 2).mean()
                    audit.reference({"loss": loss.detach().clone()})
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()

    def _stream(self) -> None:
        client = Client(self._daemon.address)
        stream = client.stream(job="streams")
        step = 0
        while not self._stop.wait(0.3):
            gap = type_i(step + 3)
            gap.missed = ["queue_full"]
            send(stream, type_i(step), inconclusive(step + 1), type_ii(step + 2), gap)
            broken = StepFrames(step + 4)
            broken.op.op.arguments[0].tensor.value = 99
            stream.send(*broken.frames())
            stream.next("error")
            step += 5
        stream.close()
        client.close()


@pytest.fixture(scope="module")
def load(daemon: DaemonProcess) -> Iterator[Load]:
    load = Load(daemon)
    yield load
    load.stop()


class Prometheus:
    """A Prometheus of the test's own, with the configuration that is shipped but for the target and the interval."""

    def __init__(self, target: str, directory: Path) -> None:
        text = PROMETHEUS_YML.read_text()
        assert "127.0.0.1:9464" in text and "scrape_interval: 15s" in text
        text = text.replace("127.0.0.1:9464", target).replace("_interval: 15s", "_interval: 1s")
        (directory / "prometheus.yml").write_text(text)
        (directory / "plumbline.rules.yml").write_text((PROMETHEUS_YML.parent / "plumbline.rules.yml").read_text())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        command = [
            "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        self._log = (directory / "log").open("w+")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)

    def ask(self, expression: str) -> list[dict[str, Any]]:
        answer = json.loads(get(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
        assert answer["status"] == "success"
        return answer["data"]["result"]

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        deadline = time.monotonic() + WAIT_S_MAX
        while True:
            self._log.seek(0)
            assert self._process.poll() is None, self._log.read()
            try:
                found = self.ask(expression)
            except OSError:  # It is not up yet.
                found = []
            if found:
                return found
            assert time.monotonic() < deadline, f"nothing within {WAIT_S_MAX} s: {expression}"
            time.sleep(0.5)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


@pytest.fixture(scope="module")
def prometheus(daemon: DaemonProcess, load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prometheus = Prometheus(metrics_address(daemon), tmp_path_factory.mktemp("prometheus"))
    try:
        # Every kind of verdict twice at least, at more than one scrape, so that there are rates.
        for verdict in ("TYPE_I", "TYPE_II", "INCONCLUSIVE"):
            prometheus.wait_for(f'rate(plumbline_verdicts_total{{verdict="{verdict}"}}[20s]) > 0')
        yield prometheus
    finally:
        prometheus.close()


@pytest.fixture(scope="module")
def scraped(daemon: DaemonProcess, prometheus: Prometheus) -> str:
    return get(f"http://{metrics_address(daemon)}/metrics")


@pytest.mark.parametrize(("title", "expression"), queries())
def test_every_panel_finds_something(title: str, expression: str, prometheus: Prometheus) -> None:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, "a variable that this test does not know"
    found = prometheus.wait_for(expression)
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


def test_the_alert_for_type_ii_fires(prometheus: Prometheus) -> None:
    (alert,) = prometheus.wait_for('ALERTS{alertname="PlumblineTypeII",alertstate="firing"}')
    assert (alert["metric"]["project"], alert["metric"]["job"]) == ("default", "streams")


def test_health(daemon: DaemonProcess) -> None:
    assert get(f"http://{metrics_address(daemon)}/healthz") == "ok\n"
