"""Whether the figures of a page are those of the API."""

from __future__ import annotations

import math

from browser import Browser

from plumbline.names import short_name
from plumbline.v1 import verdict_pb2

# Titles of columns of the page's table of steps, and what of a verdict stands there.
FIGURES = {
    "surprise": "surprise",
    "deviation": "deviation",
    "rounding allows": "envelope",
    "resolution: mathematics": "math_resolution",
    "resolution: execution": "exec_resolution",
}
COLUMNS = ("deviation", "envelope", "margin", "math_resolution", "exec_resolution", "audit_seconds")
SIGNS = {"∞": math.inf, "−∞": -math.inf, "–": math.nan}


def _of(verdict: verdict_pb2.Verdict, field: str) -> float:
    return math.nan if field == "surprise" and not verdict.HasField("surprise") else getattr(verdict, field)


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def check_figures(browser: Browser, verdicts: list[verdict_pb2.Verdict]) -> tuple[int, list[str]]:
    """Compares the open page of a job of one run, table and charts' data, with its verdicts: how many figures were
    looked at, and those that are wrong, in words."""
    all_steps = f"all {len(verdicts)}"
    # Everything at once: the choice of all verdicts, and more rows until there are no more.
    browser.run(
        "[...document.querySelectorAll('.choices button')].filter(b => b.textContent === "
        f"'{all_steps}').forEach(b => b.click())"
    )
    browser.run(
        "(() => { for (let b; (b = [...document.querySelectorAll('section > div > button')].find("
        "e => / more$/.test(e.textContent))); ) b.click(); })()"
    )
    table = "[...document.querySelectorAll('table')].find(t => t.querySelector('tr[data-step]'))"
    head = browser.run(f"[...{table}.querySelectorAll('th')].map(e => e.textContent)")
    rows = browser.run(f"[...{table}.querySelectorAll('tr[data-step]')].map(r => [...r.cells].map(c => c.textContent))")
    api = {verdict.step: verdict for verdict in verdicts}
    checked, wrong = 0, []

    def check(right: bool, what: str) -> None:
        nonlocal checked
        checked += 1
        if not right:
            wrong.append(what)

    check([int(row[0]) for row in rows] == sorted(api, reverse=True), f"steps {[row[0] for row in rows]}")
    for cells in rows:
        row, verdict = dict(zip(head, cells, strict=True)), api[int(cells[0])]
        for title, field in FIGURES.items():
            value = _of(verdict, field)
            if title not in row:
                check(math.isnan(value), f"step {verdict.step}: no column {title} for {value}")
                continue
            shown = SIGNS[row[title]] if row[title] in SIGNS else float(row[title])
            check(_same(shown, float(f"{value:.3g}")), f"step {verdict.step} {title}: {row[title]} for {value}")
        coverage = f"{verdict.coverage.audited} of {verdict.coverage.operations}"
        check(row["operations audited"] == coverage, f"step {verdict.step}: {row['operations audited']}")
        check(
            short_name(verdict_pb2.Outcome, verdict.verdict) in row["verdict"], f"step {verdict.step}: {row['verdict']}"
        )
        check(row["says"] == verdict.sentence, f"step {verdict.step}: {row['says']}")
    columns = browser.run("(page.job.steps)")  # What the charts are drawn from, bit by bit.
    for column in COLUMNS:
        for step, value in zip(columns["step"], columns[column], strict=True):
            check(_same(float(value), _of(api[int(step)], column)), f"step {step}, drawn {column}: {value}")
    return checked, wrong
