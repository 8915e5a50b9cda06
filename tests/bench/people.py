"""What people see: the page of a job in a headless Chromium, its size, its figures and its pictures.

The job that is shown trains a small network in micro-batches of uneven length. Up to step BUG_FROM it weighs every
sample the same, as its reference does with the whole batch; from then on it averages the micro-batches' means.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from private_daemon import binary, running
from torch import Tensor, nn

import plumbline

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("service", "documents", "client")]

import newcomer  # noqa: E402
import types_of_client  # noqa: E402
from browser import Browser  # noqa: E402
from commands import commands  # noqa: E402
from page_figures import check_along, check_figures  # noqa: E402
from query_support import inconclusive, query_stub, send, type_i, type_ii  # noqa: E402
from stage import run_all, settled, stage  # noqa: E402
from stream_client import Client  # noqa: E402

from plumbline.v1 import query_pb2, verdict_pb2  # noqa: E402

CUTS = [5, 3]  # Sizes of two of the three micro-batches; the third has the rest.
ROWS = 24
FIRST_PAINT = """new Promise(done => new PerformanceObserver(list => {
  for (const each of list.getEntriesByName("first-contentful-paint")) done(each.startTime);
}).observe({type: "paint", buffered: true}))"""
PAGE_KB_MAX, PAINTED_MS_MAX = 600, 1000  # Of a thousand steps.
# Pictures: how large, and the heading that is scrolled to; empty: none.
SCREENS = {
    "desktop": (1200, 1100, ""),
    "along": (1200, 1100, "Both programs along the graph"),
    "phone": (390, 844, "Steps"),
}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Network(nn.Module):
    def __init__(self, width: int = 16, classes: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def whole_batch(model: Network, x: Tensor, y: Tensor) -> None:
    F.cross_entropy(model(x), y).backward()


def every_sample_the_same(model: Network, x: Tensor, y: Tensor) -> None:
    for inputs, labels in micro_batches(x, y):
        (F.cross_entropy(model(inputs), labels, reduction="sum") / len(y)).backward()


def mean_of_means(model: Network, x: Tensor, y: Tensor) -> None:
    for inputs, labels in micro_batches(x, y):
        (F.cross_entropy(model(inputs), labels) / (len(CUTS) + 1)).backward()


def micro_batches(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    sizes = [*CUTS, len(y) - sum(CUTS)]
    return list(zip(x.split(sizes), y.split(sizes), strict=True))


def train(address: str, steps: int, bug_from: int, **watch: object) -> None:
    torch.manual_seed(1)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    audit = plumbline.watch(model, optimizer, address, every=1, on_type_ii="ignore", **watch)
    draw = torch.Generator().manual_seed(2)
    for step in range(steps):
        x = torch.randn(ROWS, 16, generator=draw)
        y = torch.randint(8, (ROWS,), generator=draw)
        accumulate = mean_of_means if step >= bug_from else every_sample_the_same
        with audit.step():
            (accumulate if "reference" in watch else whole_batch)(model, x, y)
            optimizer.step()
            optimizer.zero_grad()
        audit.flush(120)  # Every step is to be seen.
    audit.close()


def many_steps(client: Client, job: str, count: int) -> None:
    """Steps of one addition, most of them right."""
    stream = client.stream("r", job)
    kinds = (type_ii if i % 97 == 96 else inconclusive if i % 50 == 49 else type_i for i in range(count))
    send(stream, *(kind(i) for i, kind in enumerate(kinds)))
    stream.close()


def verdicts_of(client: Client, job: str) -> list[verdict_pb2.Verdict]:
    request = query_pb2.ListVerdictsRequest(filter=query_pb2.Filter(job=job), page_size=1000)
    return list(query_stub(client).ListVerdicts(request).verdicts)


def open_pairs(browser: Browser, client: Client) -> list[verdict_pb2.Verdict]:
    """Verdicts of the open page's steps that show two programs along the graph, every one of them opened."""
    browser.run("document.querySelectorAll('main > section > details').forEach(e => { e.open = true; })")
    browser.settle()
    shown = browser.run(
        "[...document.querySelectorAll('article')].filter(e => e.querySelector('.along')).map(e => e.dataset.id)"
    )
    return [query_stub(client).GetVerdict(query_pb2.GetVerdictRequest(id=each)) for each in shown]


def pictures(browser: Browser, page: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for screen, (width, height, heading) in SCREENS.items():
        browser.size(width, height)
        for scheme in ("light", "dark"):
            browser.scheme(scheme)
            browser.open(page.as_uri())
            if heading:
                headings = "[...document.querySelectorAll('h2, h3')]"
                browser.run(f"{headings}.find(e => e.textContent === '{heading}').scrollIntoView()")
            browser.picture(folder / f"{screen}-{scheme}.png")


def documents(address: str) -> tuple[str, dict[str, int], list[str]]:
    """The commands of our documents: those without a test, and why; figures; what does not do as a document says."""
    found = commands()
    with stage(address) as on:
        done, wrong = run_all(found, on)
    reasons = [(command, settled(command)) for command in found]
    text = "\n".join(f"not run: {command}: {why}" for command, why in reasons if why not in ("", "run"))
    return text, {"doc_commands": len(found), "doc_commands_run": done}, wrong


def packages(folder: Path) -> tuple[str, dict[str, int | None]]:
    """Makes the packages and goes a newcomer's path with them on a bare Debian, where this machine can have one."""
    build = binary("plumblined").parents[1]
    command = [ROOT / "deploy" / "package", "--from", build, folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    made = len(list(folder.iterdir()))
    if lacks := newcomer.missing():
        return f"not installed on a bare Debian: this machine lacks {lacks}", _packages(made, None)
    seconds = newcomer.measure(folder)
    text = "\n".join(f"{name:20} {each:6.1f} s" for name, each in seconds.items())
    text += f"\n{'whole path':20} {sum(seconds.values()):6.1f} s on a bare Debian 12, without what is downloaded"
    # Each wheel has its verdict, and so has the .deb: measure() raises otherwise.
    return text, _packages(made, made)


def _packages(made: int, installed: int | None) -> dict[str, int | None]:
    return {"packages": made, "packages_installed_clean": installed}


def measure(small: bool, folder: Path | None) -> tuple[str, dict]:
    torch.set_num_threads(1)
    shown, many = (8, 20) if small else (60, 1000)
    pairs = 0  # Steps whose two programs were looked at along the graph.
    rows, figures = [], {"console_errors": 0, "figures_checked": 0, "figures_wrong": 0}
    with running() as daemon:
        said, counts, not_so = documents(daemon.address)
    print(*not_so, sep="\n", end="\n" if not_so else "", file=sys.stderr)
    with running() as daemon, tempfile.TemporaryDirectory(prefix="plumbline.") as scratch:
        address = daemon.address.replace("unix:", "unix://", 1) if "://" not in daemon.address else daemon.address
        train(address, shown, shown, job="whole-batch", run="reference", keep_trace=True)
        bug_from = 2 * shown // 3
        train(address, shown, bug_from, job="micro-batches", run="accumulated", reference="whole-batch/reference")
        client, browser = Client(daemon.address), Browser()
        many_steps(client, "many", many)
        for job in ("micro-batches", "many"):
            page = Path(scratch) / f"{job}.html"
            command = [
                binary("plumb"),
                "report",
                job,
                "-o",
                page,
                "--server",
                daemon.address,
                "--sources",
                ROOT / "tests",
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            browser.open(page.as_uri())
            painted_ms = browser.run(FIRST_PAINT)
            looked_at = [check_figures(browser, verdicts_of(client, job))]
            looked_at += [check_along(browser, verdict) for verdict in open_pairs(browser, client)]
            for checked, wrong in looked_at:
                figures["figures_checked"] += checked
                figures["figures_wrong"] += len(wrong)
                print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
            pairs += len(looked_at) - 1
            kilobytes = page.stat().st_size / 1000
            rows.append(f"{job:14}  {len(verdicts_of(client, job)):5} steps  {kilobytes:6.0f} kB  {painted_ms:6.0f} ms")
        if folder is not None:
            pictures(browser, Path(scratch) / "micro-batches.html", folder)
        figures["console_errors"] = len(browser.errors)
        print(*browser.errors, sep="\n", end="\n" if browser.errors else "", file=sys.stderr)
        browser.close()
        client.close()
    with tempfile.TemporaryDirectory(prefix="plumbline.") as scratch:
        # The small report leaves what tests/service/test_package.py does anyway.
        bare, made = ("packages: not when it is small", _packages(0, None)) if small else packages(Path(scratch))
    errors = types_of_client.check()
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    text = "job             judged        page     first paint\n" + "\n".join([*rows, said, bare])
    passed = kilobytes <= PAGE_KB_MAX and painted_ms <= PAINTED_MS_MAX
    passed = passed and pairs > 0 and not (not_so or errors or figures["console_errors"] or figures["figures_wrong"])
    return text, {
        "readme_lines": len((ROOT / "README.md").read_text().splitlines()),
        **counts,
        "page_kb": round(kilobytes, 1),
        "page_painted_ms": round(painted_ms),
        **figures,
        **made,
        "mypy_errors": len(errors),
        "passed": passed,
    }
