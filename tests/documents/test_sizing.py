"""deploy/sizing.md reckons rightly, with what tests/report has printed."""

from __future__ import annotations

import json
import re

import pytest
from commands import ROOT

PAGE = (ROOT / "deploy/sizing.md").read_text()
SECTION = (ROOT / "tests/README.md").read_text().partition("<!-- sizing -->")[2].partition("<!-- end -->")[0]
DAY_S = 86400
EVERY = 100
ROUGH = 0.1  # The page's figures are rounded, and printed again by later reports.


def rows(after: str) -> list[list[str]]:
    """The cells of the first table behind a text."""
    table = PAGE.partition(after)[2].partition("\n\n|")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in ("|" + table).splitlines()[2:]]


def used() -> dict[str, float]:
    return {name: float(value) for name, value, _ in rows("## One node")}


def test_figures_are_those_that_were_printed() -> None:
    printed = json.loads(re.findall(r"^`(\{.*\})`$", SECTION, re.M)[0])
    assert used() == {
        "bytes of a verdict": pytest.approx(printed["bytes_per_verdict_most"], rel=ROUGH),
        "bytes of a tap": pytest.approx(printed["bytes_per_tap"], rel=ROUGH),
        "bytes of an exported verdict": pytest.approx(printed["parquet_bytes_per_verdict"], rel=ROUGH),
        "series of metrics": pytest.approx(printed["metrics_series"], rel=ROUGH),
        "verdicts a day": DAY_S / EVERY,
    }


def test_tables_of_many_nodes_are_what_they_multiply() -> None:
    figures = used()
    for nodes, *cells in [[float(cell) for cell in row] for row in rows("## Many nodes")]:
        verdicts = nodes * figures["verdicts a day"]
        sums = [
            verdicts,
            verdicts / DAY_S,
            verdicts * figures["bytes of a verdict"] / 1e9,
            verdicts * figures["bytes of an exported verdict"] / 1e6,
            nodes * figures["series of metrics"],
        ]
        assert cells == pytest.approx(sums, rel=0.005), nodes
    assert [row[0] for row in rows("## Many nodes")] == ["10", "100", "1000", "10000"]


def test_what_the_text_multiplies_is_right() -> None:
    figures = used()
    daily = figures["verdicts a day"] * figures["bytes of a verdict"]
    text = " ".join(PAGE.split())
    told = re.search(r"are (\d+) MB a day, and ([\d.]+) GB in 90 days", text)
    assert told and float(told[1]) == pytest.approx(daily / 1e6, rel=0.01)
    assert float(told[2]) == pytest.approx(90 * daily / 1e9, rel=0.01)
    large = re.search(r"(\d+) \+ (\d+) × \(4 × 291 \+ 2 - 18\), (\d+) bytes", text)
    assert large and int(large[1]) + int(large[2]) * (4 * 291 + 2 - 18) == pytest.approx(int(large[3]), rel=0.01)
    assert int(large[2]) == figures["bytes of a tap"]
    samples = re.search(r"(\d+) series each 15 s are (\d+) samples a second", text)
    assert samples and int(samples[1]) / 15 == pytest.approx(int(samples[2]), rel=0.01)
    year = re.search(r"864 × 365 × (\d+) bytes, (\d+) MB, in place of (\d+) GB", text)
    assert year and int(year[1]) == figures["bytes of an exported verdict"]
    assert 864 * 365 * int(year[1]) / 1e6 == pytest.approx(int(year[2]), rel=0.02)
    assert 365 * daily / 1e9 == pytest.approx(int(year[3]), rel=0.02)
