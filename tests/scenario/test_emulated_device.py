"""The daemon with its CUDA backend on an emulated device (tests/emulation): the whole path but for the hardware."""

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from gpu import step_ratio
from judge import base_cases, judge
from private_daemon import START_S_MAX, binary, running
from scenario import Case, scenarios
from speed import gpt_training
from torch import nn

import plumbline

# Of each family some: whole models, updates, what is chosen, scattered, narrow or out of range.
NAMES = (
    *("A5 checkpointing", "A10 fixed point", "A11 mixed precision"),
    *("DeepSpeed 7985", "dropped tile", "transformers 34191", "Triton 1821"),
    *("Llama step", "pytorch 84334", "embedding scale", "RMS norm cast"),
)
# Those with products that are large enough to be sliced.
SLICED_NAMES = ("transformers 34191", "Llama step")


@pytest.fixture(autouse=True, scope="module")
def emulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(binary("libplumbline_cuda.so").parent))
        yield


@pytest.fixture(scope="module")
def device(emulated: None) -> Iterator[str]:
    with running("--workers=cuda:0", "--gpu-memory-limit=4GiB") as daemon:
        yield daemon.address


@pytest.mark.parametrize(
    "case", [case for s in scenarios() if s.name in NAMES for case in base_cases(s)], ids=lambda case: case.name
)
def test_a_device_says_what_the_host_says(case: Case, device: str) -> None:
    verdict = judge(case, device).verdict
    assert verdict.verdict == case.label, verdict.explain()
    assert verdict.message.backend == "cuda:0"


@pytest.mark.parametrize(
    "case", [case for s in scenarios() if s.name in SLICED_NAMES for case in base_cases(s)], ids=lambda case: case.name
)
def test_a_device_says_the_same_with_products_in_slices(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_EMULATION_COUNTS", str(tmp_path / "counts"))
    with running("--workers=cuda:0", "--gpu-memory-limit=4GiB", "--sliced-products=1") as daemon:
        verdict = judge(case, daemon.address).verdict
    assert asked_of_the_device(tmp_path / "counts")["integer_products"] > 0
    assert verdict.verdict == case.label, verdict.explain()
    assert verdict.message.backend == "cuda:0"


def test_series_of_a_device_carry_the_uuid_that_cuda_tells() -> None:
    """Its number comes from the driver's library, which this machine has not."""
    with running("--workers=cuda:1,cpu", "--metrics-listen=127.0.0.1:0") as daemon:
        log = Path(daemon.address.removeprefix("unix://")).with_name("log")
        deadline = time.monotonic() + START_S_MAX  # It listens a little earlier than it says so.
        while not (found := re.search(r"metrics on ([^;\s]+)", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
        with urllib.request.urlopen(f"http://{found.group(1)}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    uuid = "GPU-01000000-0000-0000-0000-000000000000"
    for family, value in (("up", "1"), ("restarts_total", "0"), ("audit_bytes", r"\d+")):
        assert re.search(rf'^plumbline_worker_{family}{{UUID="{uuid}",worker="cuda:1"}} {value}$', page, re.MULTILINE)
        assert re.search(rf'^plumbline_worker_{family}{{worker="cpu"}} \d+$', page, re.MULTILINE)


def test_a_step_is_measured_against_the_same_in_fp64() -> None:
    shape = {"depth": 1, "width": 16, "heads": 2, "groups": 1, "vocabulary": 32, "time": 8}
    assert 0 < step_ratio("cpu", shape, (2, 9)) < float("inf")


def test_what_does_not_fit_a_device_is_audited_on_the_host() -> None:
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(2)))
    optimizer = torch.optim.AdamW(model.parameters())
    with (
        running("--workers=cuda:0,cpu", "--gpu-memory-limit=64MiB") as daemon,
        plumbline.watch(model, optimizer, daemon.address, job="large", every=1) as audit,
    ):
        with audit.step():
            model(torch.randn(64, 1024)).square().mean().backward()
            optimizer.step()
        assert audit.flush(60)
        assert not audit.errors()
        (verdict,) = audit.verdicts()
    assert (verdict.verdict, verdict.message.backend) == ("TYPE_I", "cpu")


def asked_of_the_device(path: Path) -> dict[str, int]:
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith(" ")]
    return {kind: int(number) for kind, number in lines}


def counted(model: nn.Module, loss: Callable[[], torch.Tensor], path: Path, *flags: str) -> dict[str, int]:
    """What the daemon asks of its device while it starts and audits a step (tests/emulation/counts.h)."""
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_EMULATION_COUNTS", str(path))
        with (
            running("--workers=cuda:0", "--gpu-memory-limit=4GiB", *flags) as daemon,
            plumbline.watch(model, optimizer, daemon.address, job="counted", every=1) as audit,
        ):
            with audit.step():
                loss().backward()
                optimizer.step()
            assert audit.flush(120)
            assert not audit.errors()
            assert [verdict.verdict for verdict in audit.verdicts()] == ["TYPE_I"]
    return asked_of_the_device(path)


def squares(model: nn.Module, batch: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: model(batch).square().mean()


def test_a_step_of_tiny_tensors_launches_nothing(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(12, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 8), nn.Softmax(-1))
    found = counted(model, squares(model, torch.randn(8, 12)), tmp_path / "counts")
    assert (found["launches"], found["waits"], found["fetches"], found["sends"]) == (0, 0, 0, 0)


def test_a_step_waits_for_its_device_a_few_times_an_operation(tmp_path: Path) -> None:
    """As often as numbers decide what is done next; each wait leaves the device idle for some microseconds."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(96, 96), nn.GELU())]
    model = nn.Sequential(*layers)
    found = counted(model, squares(model, torch.randn(96, 96)), tmp_path / "counts")
    assert 0 < found["waits"] <= 5 * len(layers)


def test_a_step_of_a_small_gpt_waits_for_its_device_less_than_a_hundred_times(tmp_path: Path) -> None:
    training = gpt_training(small=True)
    found = counted(
        training.model, lambda: next(iter(training.losses(training.model, training.batches[0], 1))), tmp_path / "counts"
    )
    assert found["launches"] > 1000, "it is large enough for the device"
    assert 0 < found["waits"] < 100


def test_products_are_sliced_where_that_is_asked_for_and_they_are_large_enough(tmp_path: Path) -> None:
    """Each by nine products of integers: eight of slices, and one that tells whether they suffice."""
    model = nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 48))
    loss = squares(model, torch.randn(64, 96))
    found = counted(model, loss, tmp_path / "sliced", f"--sliced-products={64 * 96 * 96}")
    assert found["integer_products"] > 0
    assert found["integer_products"] % 9 == 0
    all_of_them = counted(model, loss, tmp_path / "all", "--sliced-products=1")
    assert all_of_them["integer_products"] > found["integer_products"]
    assert counted(model, loss, tmp_path / "none")["integer_products"] == 0


def test_an_emulated_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(RuntimeError, match="cuda:2: no CUDA device 2: expected 0 to 1"), running("--workers=cuda:2"):
        pass
