"""The reports of the service as a whole, as test_reports.py has the others."""

import json
import math
import subprocess
import sys

import pytest
from small_reports import KEYS, OF_THE_SERVICE, ROOT, report


@pytest.mark.parametrize("name", OF_THE_SERVICE)
def test_report(name: str) -> None:
    text, figures = report(name)
    assert list(figures) == KEYS[name]
    if name == "service":
        assert (figures["fuzz_execs"], figures.pop("fuzz_crashes")) == (0, None), "not when it is small"
        assert figures["acked_lost"] == figures["duplicates"] == figures["silent_gaps"] == 0
        assert figures["attacks_survived"] == figures["attacks"] > 0 < figures["bad_inputs"] == figures["clear_errors"]
        assert figures["streams_ok"] == figures["streams"] > 0 == figures["unauthorised_let_in"]
    if name == "people":
        assert (figures["packages"], figures.pop("packages_installed_clean")) == (0, None), "not when it is small"
        assert figures["doc_commands_run"] + text.count("not run: ") == figures["doc_commands"] > 60
        assert figures["mypy_errors"] == 0 and figures["readme_lines"] <= 150
        assert figures["console_errors"] == figures["figures_wrong"] == 0 and figures["figures_checked"] > 300
    if name == "scaleout":
        assert (figures["daemons"], figures["multi_node_jobs"]) == (3, 2), text
        assert figures["multi_node_same_as_single"] is True, text
        assert figures["lost"] == figures["duplicates"] == 0 < figures["verdicts"]
        assert figures["pairs_same_as_single_node"] is True
        assert (figures["simulated_daemons"], figures["simulated_lost"]) == (20, 0)
        assert (figures["kills"], figures["partitions"], figures["jetstream_wipes"]) == (3, 1, 1)
    if name == "upgrade":
        assert figures.pop("from") == "this build" and figures["daemons"] > 1
        assert figures["lost"] == figures["duplicates"] == figures["refused"] == 0 < figures["verdicts"]
    assert all(math.isfinite(value) for value in figures.values())


def test_parts_of_the_service_run_alone() -> None:
    command = [sys.executable, str(ROOT / "tests" / "bench" / "report.py"), "service", "--small", "--only"]
    ran = subprocess.run([*command, "bad_inputs"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout.splitlines()[-1])
    assert list(figures) == KEYS["service"]
    assert figures["bad_inputs"] == figures["clear_errors"] > 0
    assert {key for key, value in figures.items() if value is not None} == {"bad_inputs", "clear_errors"}
    ran = subprocess.run([*command, "bad_inputs,spells"], capture_output=True, text=True)
    assert ran.returncode == 2 and "found 'spells'" in ran.stderr
