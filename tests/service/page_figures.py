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


# Titles of columns of two programs side by side, what of an operation stands there, and with how many digits.
ALONG = {
    "deviation": ("deviation", 3),
    "rounding explains": ("allowed", 3),
    "target's value": ("target_value", 9),
    "reference's value": ("reference_value", 9),
    "drift": ("drift", 3),
}


def _shown(text: str) -> float:
    figure = text.split(" [")[0]  # A value's element follows.
    return SIGNS[figure] if figure in SIGNS else float(figure)


def check_along(browser: Browser, verdict: verdict_pb2.Verdict) -> tuple[int, list[str]]:
    """The same of the two programs of a step, which the open page must show in full, along their graphs."""
    known, at = verdict.alignment, f"step {verdict.step}"
    article = f"document.querySelector('article[data-id=\"{verdict.id}\"]')"
    browser.run(
        f"(() => {{ for (let b; (b = [...{article}.querySelectorAll('.along > button')].find("
        "e => / (before|after)$/.test(e.textContent))); ) b.click(); })()"
    )
    head = browser.run(f"[...{article}.querySelectorAll('.along th')].map(e => e.textContent)")
    rows = browser.run(
        f"[...{article}.querySelectorAll('.along tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    marked = browser.run(f"[...{article}.querySelectorAll('.along tr.parts')].map(r => Number(r.dataset.operation))")
    drawn = browser.run(f"page.job.full.find(s => s.verdict.id === '{verdict.id}').verdict.alignment.operations")
    checked, wrong = 0, []

    def check(right: bool, what: str) -> None:
        nonlocal checked
        checked += 1
        if not right:
            wrong.append(f"{at}, {what}")

    parts = [known.before + known.parts + 1] if known.HasField("parts") else []
    check(marked == parts, f"where the programs part: {marked} for {parts}")
    check(0 < len(rows) == len(drawn), f"{len(rows)} operations side by side of {len(drawn)}")
    for cells, drawn_one in zip(rows, drawn, strict=True):
        row, operation = dict(zip(head[4:], cells[4:], strict=True)), known.operations[int(cells[0]) - 1 - known.before]
        for title, (field, digits) in ALONG.items():
            value = getattr(operation, field)
            if title not in row:
                check(math.isnan(value), f"operation {cells[0]}: no column {title} for {value}")
                continue
            shown = _shown(row[title])
            check(_same(shown, float(f"{value:.{digits}g}")), f"operation {cells[0]} {title}: {row[title]} for {value}")
        for field in ("deviation", "allowed"):  # What the chart is drawn from, bit by bit.
            check(
                _same(float(drawn_one.get(field, 0)), getattr(operation, field)), f"operation {cells[0]}, drawn {field}"
            )
        for side, cell in zip(("target", "reference"), cells[2:4], strict=True):
            op = getattr(operation, side).op
            check(
                cell.startswith(op) if op else cell == "nothing here", f"operation {cells[0]} {side}: {cell} for {op}"
            )
    return checked, wrong
