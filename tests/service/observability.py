"""A daemon under load, a real Prometheus that scrapes it, and the queries of the dashboard."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import torch
from query_support import inconclusive, query_stub, send, type_i, type_ii
from stream_client import Client, StepFrames
from stream_daemon import ROOT, DaemonProcess

import plumbline
from plumbline.v1 import query_pb2

DASHBOARD = ROOT / "deploy/grafana/dashboards/plumbline.json"
PROMETHEUS_YML = ROOT / "deploy/prometheus/prometheus.yml"
RULES_YML = ROOT / "deploy/prometheus/plumbline.rules.yml"
RULE_TESTS_YML = ROOT / "deploy/prometheus/plumbline.test.yml"
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


def put_in(expression: str) -> str:
    """The expression as Grafana would ask it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, "a variable that is not known here"
    return expression


def rules() -> list[str]:
    return re.findall(r"^\s*- alert: (\w+)$", RULES_YML.read_text(), re.MULTILINE)


def rules_tested() -> list[str]:
    """Those that a test expects to fire, with the tests passed."""
    subprocess.run(
        ["promtool", "test", "rules", RULE_TESTS_YML.name], cwd=RULE_TESTS_YML.parent, check=True, capture_output=True
    )
    fired = re.findall(r"alertname: (\w+)\n\s*exp_alerts:\n\s*- exp_labels", RULE_TESTS_YML.read_text())
    return [rule for rule in rules() if rule in fired]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


# Nobody is there, so that there is something to be sent.
AWAY = ("--store=postgresql://nobody@127.0.0.1:1/none", "--publish=nats://127.0.0.1:1")


class Load:
    """Jobs that never stop: a training run through the Python client, streams of every outcome, whose client asks for
    its job, and a run of two ranks."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = daemon
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guard, args=(job,)) for job in (self._train, self._stream, self._ranks)
        ]
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
            query_stub(client).GetJob(query_pb2.GetJobRequest(job="streams"))
            step += 5
        stream.close()
        client.close()

    def _ranks(self) -> None:
        client = Client(self._daemon.address)
        ranks = [client.stream(job="ranks", rank=rank, ranks=2) for rank in range(2)]
        step = 0
        while not self._stop.wait(0.3):
            for stream in ranks:
                stream.send(*type_i(step).frames())
            for stream in ranks:
                stream.next("verdict")
            step += 1
        for stream in ranks:
            stream.close()
        client.close()


class Prometheus:
    """A Prometheus of the test's own, with the configuration that is shipped but for the target and the interval."""

    def __init__(self, target: str, directory: Path) -> None:
        text = PROMETHEUS_YML.read_text()
        assert "127.0.0.1:9464" in text and "scrape_interval: 15s" in text
        text = text.replace("127.0.0.1:9464", target).replace("_interval: 15s", "_interval: 1s")
        (directory / "prometheus.yml").write_text(text)
        (directory / "plumbline.rules.yml").write_text(RULES_YML.read_text())
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

    def wait_for_rates(self) -> None:
        """Until every kind of verdict has come between two scrapes, and the training's with its resolution."""
        for verdict in ("TYPE_I", "TYPE_II", "INCONCLUSIVE"):
            self.wait_for(f'rate(plumbline_verdicts_total{{verdict="{verdict}"}}[20s]) > 0')
        for histogram in ("math_resolution", "exec_resolution", "surprise", "margin"):
            self.wait_for(f"rate(plumbline_{histogram}_count[20s]) > 0")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()
