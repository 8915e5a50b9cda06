"""The mixin gives the alerts and the dashboard that lie beside it, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from observability import RULE_TESTS_YML, RULES_YML, dashboard, rules
from stream_daemon import ROOT

MIXIN = ROOT / "deploy/mixin/mixin.libsonnet"


def evaluated(expression: str) -> Any:
    """The JSON of a jsonnet expression, in which `mixin` is the mixin."""
    program = f'local mixin = import "{MIXIN}"; {expression}'
    done = subprocess.run(["jsonnet", "-e", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_dashboard_is_the_file() -> None:
    assert evaluated("mixin.grafanaDashboards") == {"plumbline.json": dashboard()}


def test_the_alerts_are_those_of_the_file(tmp_path: Path) -> None:
    alerts = evaluated("mixin.prometheusAlerts")
    assert [rule["alert"] for group in alerts["groups"] for rule in group["rules"]] == rules()
    # Prometheus takes the mixin's rules in the file's place, and each fires where the file's does.
    (tmp_path / RULES_YML.name).write_text(json.dumps(alerts))  # JSON is YAML.
    (tmp_path / RULE_TESTS_YML.name).write_text(RULE_TESTS_YML.read_text())
    done = subprocess.run(["promtool", "test", "rules", RULE_TESTS_YML.name], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout


def test_runbooks_are_where_the_user_serves_them() -> None:
    asked = 'mixin + {_config+:: {runbookPrefix: "https://runbooks.example.org/"}}'
    served = evaluated(f"({asked}).prometheusAlerts")
    plain = evaluated("mixin.prometheusAlerts")
    for group, as_filed in zip(served["groups"], plain["groups"], strict=True):
        for rule, filed in zip(group["rules"], as_filed["rules"], strict=True):
            place = filed["annotations"].pop("runbook_url")
            assert rule["annotations"].pop("runbook_url") == f"https://runbooks.example.org/{place}"
            assert rule == filed


def test_it_adds_to_what_is_there() -> None:
    others = 'prometheusAlerts+:: {groups: [{name: "other", rules: []}]}, grafanaDashboards+:: {"other.json": {}}'
    both = evaluated("local m = {" + others + "} + mixin; {a: m.prometheusAlerts, d: m.grafanaDashboards}")
    assert [group["name"] for group in both["a"]["groups"]] == ["other", "plumbline"]
    assert set(both["d"]) == {"other.json", "plumbline.json"}
