"""The page of `plumb report` and `plumb ui`, as a browser shows it."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from page_figures import check_along, check_figures
from query_support import inconclusive, paired, plumb, query_stub, run_plumb, send, type_i, type_ii
from stream_client import Client
from stream_daemon import DaemonProcess

from plumbline.v1 import query_pb2, verdict_pb2

# What a person without a mouse, without colours or with a screen reader needs, as far as rules can tell.
RULES = """(() => {
  const wrong = [];
  const all = (query) => [...document.querySelectorAll(query)];
  for (const e of all("a, button, select, summary"))
    if (!(e.textContent.trim() || e.getAttribute("aria-label"))) wrong.push("no name: " + e.outerHTML.slice(0, 80));
  for (const e of all("[role=img]")) if (!e.getAttribute("aria-label")) wrong.push("picture without words");
  for (const e of all("select")) if (!e.closest("label")) wrong.push("select without label");
  for (const e of all("[tabindex]")) if (e.tabIndex > 0) wrong.push("tabindex above 0");
  for (const e of all("th")) if (!e.scope) wrong.push("head cell without scope");
  for (const e of all(".scroll, pre")) if (e.tabIndex < 0) wrong.push("scrolls, but not by keyboard: " + e.className);
  if (!document.documentElement.lang || !document.title) wrong.push("no language or title");
  if (all("h1").length !== 1 || all("main").length !== 1) wrong.push("one h1 and one main");
  let level = 1;
  for (const e of all("h1, h2, h3, h4")) {
    const own = Number(e.tagName[1]);
    if (own > level + 1) wrong.push("heading skips a level: " + e.textContent);
    level = own;
  }
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = c.map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 :
    ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  for (const e of all("p, dt, dd, td, th, h1, h2, h3, button, code, .outcome, .figure, .line-number, li, summary")) {
    const a = light(rgb(getComputedStyle(e).color).slice(0, 3)), b = light(ground(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) wrong.push(`contrast ${contrast.toFixed(2)}: ${e.className} ${e.textContent.slice(0, 30)}`);
  }
  return wrong;
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def job(client: Client, run: str) -> str:
    """A job with ten verdicts, of each outcome some."""
    name = "job-" + run
    stream = client.stream(run, name)
    send(stream, *(type_ii(i) if i == 7 else inconclusive(i) if i % 4 == 3 else type_i(i) for i in range(10)))
    stream.close()
    return name


def report(daemon: DaemonProcess, job: str, tmp_path: Path, *flags: str) -> Path:
    path = tmp_path / "report.html"
    ran = run_plumb(daemon, "report", job, "-o", str(path), *flags)
    assert (ran.returncode, ran.stdout) == (0, f"{path}\n"), ran.stderr
    return path


def open_clean(browser: Browser, path: Path) -> None:
    """Opens a report, which must ask for nothing but itself and complain of nothing."""
    browser.errors.clear()
    browser.requests.clear()
    browser.open(path.as_uri())
    assert browser.errors == []
    assert browser.requests == [path.as_uri()]


def verdicts_of(client: Client, job: str) -> list[verdict_pb2.Verdict]:
    request = query_pb2.ListVerdictsRequest(filter=query_pb2.Filter(job=job), page_size=1000)
    return list(query_stub(client).ListVerdicts(request).verdicts)


def test_every_figure_is_the_apis(
    browser: Browser, shared_daemon: DaemonProcess, client: Client, job: str, tmp_path: Path
) -> None:
    open_clean(browser, report(shared_daemon, job, tmp_path))
    verdicts = verdicts_of(client, job)
    checked, wrong = check_figures(browser, verdicts)
    assert (checked, wrong) == (1 + 10 * (8 + 6), [])
    (explained,) = [v for v in verdicts if v.verdict == verdict_pb2.OUTCOME_TYPE_II]
    article = browser.run("document.querySelector('article').textContent")
    assert explained.sentence in article and explained.suspect_detail in article
    assert f"plumb reproduce {explained.id} -o repro.py" in article


def test_both_programs_along_the_graph(
    browser: Browser, shared_daemon: DaemonProcess, client: Client, run: str, tmp_path: Path
) -> None:
    job, length, at = "along-" + run, 300, 180
    verdict = paired(client, job, length, at)
    along = verdict.alignment
    assert (verdict.verdict, len(along.operations)) == (verdict_pb2.OUTCOME_TYPE_II, 256)
    assert along.before + along.parts + 1 == at and along.agree == at - 1
    parts = along.operations[along.parts]
    assert (parts.target.op, parts.target.source) == ("aten::mul.Tensor", f"target.py:{at}")
    assert (parts.reference.op, parts.reference.source) == ("aten::add.Tensor", f"reference.py:{at}")
    # x is (1, 2, 3), and after 180 additions a multiplication by it: where they differ most, 540 x 3 for 540 + 3.
    assert (parts.element, parts.target_value, parts.reference_value) == (2, 1620, 543)
    assert parts.deviation > 1 and parts.allowed < 1e-12
    path = report(shared_daemon, job, tmp_path)
    open_clean(browser, path)
    checked, wrong = check_along(browser, verdict)
    assert (checked, wrong) == (2 + 80 * 9, [])
    article = browser.run("document.querySelector('article').textContent")
    assert f"The first place where the programs part is operation {at}." in article
    assert browser.run("document.querySelectorAll('.along').length") == 1
    chart = "[...document.querySelectorAll('.chart')].find(e => /along the graph/.test(e.getAttribute('aria-label')))"
    assert browser.run(f"{chart}.querySelectorAll('canvas').length") > 0
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.settle()
        assert browser.run(RULES) == []
    browser.scheme("light")
    browser.size(360, 740)
    browser.settle()
    assert browser.run("document.documentElement.scrollWidth") == 360
    browser.size(1200, 900)


def test_more_operations_are_shown_by_keyboard(
    browser: Browser, shared_daemon: DaemonProcess, client: Client, run: str, tmp_path: Path
) -> None:
    job = "more-" + run
    paired(client, job, 60, 30)
    open_clean(browser, report(shared_daemon, job, tmp_path))
    shown = "[...document.querySelectorAll('.along tbody tr')].map(r => Number(r.dataset.operation))"
    assert browser.run(shown) == list(range(24, 37))
    browser.run("[...document.querySelectorAll('.along > button')].find(b => b.textContent === '24 after').focus()")
    browser.press("Enter", 13, "\r")
    browser.until("document.querySelectorAll('.along tbody tr').length > 13")
    assert browser.run(shown) == list(range(24, 61))
    assert browser.errors == []


def test_rules_of_access_in_both_schemes(
    browser: Browser, shared_daemon: DaemonProcess, job: str, tmp_path: Path
) -> None:
    path = report(shared_daemon, job, tmp_path)
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        open_clean(browser, path)
        browser.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
        browser.settle()
        assert browser.run(RULES) == []
    browser.size(360, 740)
    browser.settle()
    assert browser.run("document.documentElement.scrollWidth") == 360
    browser.size(1200, 900)
    browser.scheme("light")


def test_a_step_is_opened_by_keyboard(
    browser: Browser, shared_daemon: DaemonProcess, job: str, run: str, tmp_path: Path
) -> None:
    open_clean(browser, report(shared_daemon, job, tmp_path))
    browser.press("Tab", 9)
    assert browser.run("document.activeElement.textContent") == "Skip to the content"
    browser.run("document.querySelector('tr[data-step=\"7\"] button').focus()")
    browser.press("Enter", 13, "\r")
    browser.until("document.activeElement.tagName === 'ARTICLE'")
    assert browser.run("document.activeElement.dataset.id") == f"default/{job}/{run}/0/7"


def test_names_are_text(
    browser: Browser, shared_daemon: DaemonProcess, client: Client, run: str, tmp_path: Path
) -> None:
    hostile, job = "<img src=x onerror=hacked()></script><script>hacked()</script>&amp;", "names-" + run
    rtl, long = "\u202eשלום grad:\u05d0", "t" * 4096
    stream = client.stream(run, job)
    for step, tap in enumerate((rtl, long, "<b>bold</b>")):
        frames = type_ii(step)
        frames.tap.tap.name = tap
        frames.op.op.source, frames.op.op.module = "<i>x</i>.py:3", hostile
        send(stream, frames)
    stream.close()
    path = report(shared_daemon, job, tmp_path)
    assert "<img" not in path.read_text() and "<b>bold" not in path.read_text()
    # No daemon takes such a name for a job; the page does not rely on that.
    escaped = re.sub("[<>&]", lambda each: f"\\u{ord(each[0]):04x}", hostile)
    path.write_text(path.read_text().replace(f'"job":"{job}"', f'"job":"{escaped}"'))
    open_clean(browser, path)
    browser.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    browser.settle()
    assert browser.run("document.querySelectorAll('main img, main b, main script').length") == 0
    assert browser.run("document.querySelector('h2').textContent") == hostile
    text = browser.run("document.querySelector('main').textContent")
    assert "?שלום grad:" in text and "\u202e" not in text, (
        "a mark that turns the line's direction is shown as what it is"
    )
    assert "(4096 characters)" in text and "<b>bold</b>" in text
    browser.size(360, 740)
    browser.settle()
    assert browser.run("document.documentElement.scrollWidth") == 360
    browser.size(1200, 900)


def test_jobs_without_steps_and_with_one(
    browser: Browser, shared_daemon: DaemonProcess, client: Client, run: str, tmp_path: Path
) -> None:
    job = "empty-" + run
    stream = client.stream(run, job)
    open_clean(browser, report(shared_daemon, job, tmp_path))
    assert "No step has been judged yet." in browser.run("document.querySelector('main').textContent")
    send(stream, type_i(0))
    stream.close()
    open_clean(browser, report(shared_daemon, job, tmp_path))
    assert browser.run("document.querySelectorAll('tr[data-step]').length") == 1
    assert browser.run("document.querySelectorAll('.chart canvas').length") > 0


def test_source_lines_come_from_the_given_folder_alone(
    browser: Browser, shared_daemon: DaemonProcess, job: str, tmp_path: Path
) -> None:
    sources = tmp_path / "src"
    (sources / "deep").mkdir(parents=True)
    outside = tmp_path / "outside.py"
    outside.write_text("secret = 1\n" * 9)
    (sources / "train.py").symlink_to(outside)
    path = report(shared_daemon, job, tmp_path, "--sources", str(sources))
    assert "secret" not in path.read_text() and "no train.py under" in path.read_text()
    (sources / "deep" / "train.py").write_text("".join(f"line {n} <b>\n" for n in range(1, 20)))
    open_clean(browser, report(shared_daemon, job, tmp_path, "--sources", str(sources)))
    assert browser.run("document.querySelector('pre .here').textContent").strip() == "7  line 7 <b>"
    (sources / "train.py").unlink()
    (sources / "train.py").write_text("\n" * 9)
    assert (
        f"2 files under {sources} are called train.py"
        in report(shared_daemon, job, tmp_path, "--sources", str(sources)).read_text()
    )


def test_a_report_that_cannot_be_made(shared_daemon: DaemonProcess, job: str, tmp_path: Path) -> None:
    for arguments, says in (
        (["report", job], "-o: expected a file to write"),
        (["report", "-o", "x.html"], "expected the name of a job, found 0"),
        (["report", "none", "-o", str(tmp_path / "x.html")], 'there is no job "none"'),
        (["report", job, "-o", str(tmp_path / "no" / "x.html")], f"cannot write to {tmp_path}/no/x.html"),
        (["report", job, "-o", str(tmp_path)], f"cannot write to {tmp_path}"),
        (["report", job, "-o", "/dev/full"], "cannot write to /dev/full"),
    ):
        ran = run_plumb(shared_daemon, *arguments)
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
        assert says in ran.stderr, ran.stderr
    assert list(tmp_path.iterdir()) == []
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode), "a device stays one"


@pytest.fixture
def site(shared_daemon: DaemonProcess) -> Iterator[str]:
    yield from serve(shared_daemon)


def serve(daemon: DaemonProcess) -> Iterator[str]:
    command = [str(plumb()), "ui", "--server", daemon.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            assert process.wait(30) == 0


def test_ui_follows_a_job(browser: Browser, client: Client, site: str, job: str, run: str) -> None:
    browser.errors.clear()
    browser.requests.clear()
    browser.open(site)
    browser.until(f"[...document.querySelectorAll('td a')].some(a => a.textContent === '{job}')")
    browser.run(f"[...document.querySelectorAll('td a')].find(a => a.textContent === '{job}').click()")
    browser.until("document.querySelector('article .TYPE_II')")
    stream = client.stream(run + "-2", job)
    send(stream, type_ii(10))
    stream.close()
    browser.until("document.querySelector('.verdict-line').textContent.includes('TYPE_II 2')")
    browser.run(f"location.hash = '#job/default/{job}/step/{run}/0/3'")
    browser.until("document.activeElement.tagName === 'ARTICLE'")
    assert "INCONCLUSIVE" in browser.run("document.activeElement.textContent")
    assert browser.errors == []
    assert all(request.startswith(site) or request.startswith("data:") for request in browser.requests)


def test_ui_shows_what_is_under_way(browser: Browser, new_daemon) -> None:
    """A step that waits for its reference, until that comes."""
    daemon = new_daemon("--reference-timeout=10m")
    client = Client(daemon.address)
    reference = client.stream("reference", "job", reference=True)
    stream = client.stream("pair", "job", reference_run="reference")
    stream.send(*type_i(20).frames())
    browser.open("about:blank")  # The page before asks for what is gone.
    browser.errors.clear()
    for site in serve(daemon):
        browser.open(f"{site}#job/default/job")
        browser.until("document.querySelector('.audits li')?.textContent.includes('waits for its reference')")
        line = browser.run("document.querySelector('.audits li').textContent")
        assert line.startswith("step 20 of pair waits for its reference for "), line
        send(reference, type_i(20))
        stream.durable(20)
        browser.until("!document.querySelector('.audits')")
    assert browser.errors == []
    client.close()


def test_ui_says_that_the_daemon_is_gone_and_goes_on(browser: Browser, new_daemon) -> None:
    daemon = new_daemon()
    client = Client(daemon.address)
    stream = client.stream("r", "job")
    send(stream, type_i(0))
    stream.close()
    for site in serve(daemon):
        browser.open(site + "#job/default/job")
        browser.until("document.querySelector('tr[data-step]')")
        daemon.terminate()
        assert daemon.wait() == 0
        browser.until("document.getElementById('status').textContent.includes('no answer from')")
        assert browser.run("document.querySelectorAll('tr[data-step]').length") == 1, "what was seen stays"
        daemon.start()
        browser.until("document.getElementById('status').textContent === ''")
    client.close()


def test_ui_tells_nothing_without_the_secret(site: str) -> None:
    root = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/[0-9a-f]{32}/", site)
    assert root, site
    for path in ("/", "/page.json", f"/{'0' * 32}/page.json"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(root[1] + path, timeout=30)
        assert (refused.value.code, refused.value.read()) == (404, b"not found\n")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(site + "step.json?id=none", timeout=30)
    assert refused.value.code == 400 and "none" in json.loads(refused.value.read())["error"]
    with urllib.request.urlopen(site, timeout=30) as answer:
        assert answer.headers["X-Frame-Options"] == "DENY" and answer.headers["Cache-Control"] == "no-store"
