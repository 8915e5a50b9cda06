"""What the CUDA backend is on the device at hand: agreement with the CPU backend; without one, what its build says, and
what its kernels compute on the emulated device of tests/emulation, where that is built."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "cuda"
DAEMONS = Path(os.environ.get("PLUMBLINE_BUILD", ROOT / "build" / "release"))  # Or an unpacked deploy/bundle.
CARRIED = DAEMONS / "bin" / "test_kernels_cuda"  # Of a bundle.
ON_DEVICE = CARRIED if CARRIED.exists() else BUILD / "tests" / "unit" / "kernels" / "test_kernels_cuda"
EMULATED = DAEMONS / "tests" / "emulation" / "test_kernels_emulated"
sys.path.insert(0, str(ROOT / "kernels" / "cuda"))
import resources  # noqa: E402

RUN_S_MAX = 300
REPETITIONS = 5
RATIOS = (
    *("elementwise_bw_fraction", "chain_bw_fraction", "fp32_matmul_audit_ratio", "bf16_matmul_audit_ratio"),
    *("checksum_ratio", "bf16_checksum_ratio", "sliced_product_ratio", "step_ratio"),
)


def measure() -> tuple[str, dict]:
    emulated = agreement(run(EMULATED, "AgreesWithTheHost")) if EMULATED.exists() else None
    nowhere = {"device": None, "emulated": emulated, "passed": emulated is None or agrees(emulated)}
    if ON_DEVICE is not CARRIED and not build():
        return "no device was looked for: nvcc was not found", nowhere
    found = run(ON_DEVICE, "AgreesWithTheHost")
    tables = sorted(path.stem for path in (BUILD / "kernels" / "cuda" / "resources").glob("*.tsv"))
    kernels = resources.table(resources.read(BUILD / "kernels" / "cuda" / "resources", tables)) if tables else ""
    if not found["device"]:
        return f"{kernels}\n\nno device: {found['reason']}; nothing ran on one", nowhere
    figures = {"device": found["device"], **agreement(found)}
    passed = agrees(figures)
    speed = run(ON_DEVICE, "Speed")
    speed["step_ratio"] = step_ratio() if trains_on_a_device() else None
    figures |= {name: round(float(speed[name]), 3) if speed.get(name) else None for name in RATIOS}
    return f"{kernels}\n\n{found['device']}: every primitive against the host", {**figures, "passed": passed}


def trains_on_a_device() -> bool:
    """Whether PyTorch, our client's libraries and a daemon are here: a node may have the toolkit alone."""
    try:
        import grpc  # noqa: F401
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available() and any(path.is_file() for path in DAEMONS.rglob("plumblined"))


def step_ratio(device: str = "cuda", shape: dict | None = None, tokens: tuple[int, int] | None = None) -> float:
    """A whole step trained on the device: its verdict by a CUDA worker / PyTorch running it again in fp64, there."""
    import torch
    from llama import LLAMA_25M, Llama
    from private_daemon import running
    from speed import Training, audited

    shape = shape or LLAMA_25M
    torch.manual_seed(0)
    model = Llama(**shape).to(device)
    size = (REPETITIONS, *(tokens or (4, shape["time"] + 1)))
    batches = list(torch.randint(0, shape["vocabulary"], size, device=device))
    training = Training("Llama", model, batches, "")
    with running("--workers=cuda:0", "--gpu-memory-limit=50%") as daemon:
        audited(daemon, dataclasses.replace(training, batches=batches[:1]), "warm", None)
        exact = audited(daemon, training, "exact", None)
    if any(verdict.message.backend != "cuda:0" for verdict in exact.verdicts):
        raise RuntimeError("a step was not audited on the device")
    return exact.ratio()


def build() -> bool:
    """Builds the preset; whether nvcc was found."""
    commands = [["cmake", "--preset", "cuda", "-DBUILD_TESTING=ON"], ["cmake", "--build", "--preset", "cuda"]]
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if "nvcc was not found" in done.stdout:
            return False
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return True


def agreement(found: dict) -> dict:
    return {name: int(found[name]) for name in ("primitives", "agree", "violations")}


def agrees(figures: dict) -> bool:
    return figures["agree"] == figures["primitives"] > 0 and figures["violations"] == 0


def run(program: Path, name: str) -> dict:
    """What a test recorded; one that died on the device has no figures."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "result.json"
        command = [str(program), f"--gtest_filter=Cuda.{name}"]
        environment = {**os.environ, "GTEST_OUTPUT": f"json:{output}"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, env=environment, check=False)
        if done.returncode:
            print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
        if not output.exists():
            raise SystemExit(f"Cuda.{name} did not end: exit status {done.returncode}")
        (suite,) = json.loads(output.read_text())["testsuites"]
        (test,) = suite["testsuite"]
        return test
