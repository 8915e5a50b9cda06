"""`python -m plumbline.calibrate`: see --help."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from ..device import device_profile
from ..errors import PlumblineError
from .measure import Calibration, Calibrator, short
from .profiles import load, text_of

EPILOG = """A sample refutes a promise, and proves none: the profile that is written keeps what the base claims where it
was not refuted, and states twice what was measured where it was, or where the base says nothing. Kernels that hide a
function (fused attention, gelu), products of class tf32 and fp8, split sums and elided casts are covered by the base's
claims alone. Put the file into a copy of the daemon's
profiles (plumblined --profiles=DIRECTORY) and name it: plumbline.watch(..., profile=NAME).
Exit status: 0 no claim was refuted, 2 some were, 1 an error."""


def table(calibration: Calibration) -> str:
    lines = []
    for finding in calibration.findings:
        verdict = "CONTRADICTED" if finding.contradicted else "looser than measured" if finding.looser else ""
        claimed = "nothing" if finding.claimed is None else short(finding.claimed)
        lines.append((finding.claim, claimed, short(finding.measured), verdict, finding.where))
    lines.insert(0, ("claim", "claimed", "measured", "", "the largest"))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    text = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]) for line in lines
    ]
    return "\n".join(
        [
            *text,
            *calibration.notes,
            *(f"no profile states it, the daemon's rule for the operation must: {line}" for line in calibration.narrow),
        ]
    )


def parser() -> argparse.ArgumentParser:
    said = argparse.ArgumentParser(
        prog="python -m plumbline.calibrate",
        description="Measures on a device, through PyTorch's kernels, what its profile claims of their arithmetic.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    first = "cuda" if torch.cuda.is_available() else "cpu"
    said.add_argument("--device", default=first, help="cpu, cuda, cuda:1 ... (default here: %(default)s)")
    said.add_argument(
        "--base",
        help="profile to hold to its claims: a name, NAME+OPTION, or a file (default: the "
        "device's own, as watch() chooses it)",
    )
    said.add_argument("-o", "--output", metavar="FILE.textproto", help="write the calibrated profile")
    said.add_argument("--name", type=_name, help="of the profile written (default: BASE-calibrated)")
    said.add_argument("--quick", action="store_true", help="seconds: 16 thousand numbers a range instead of 4 million")
    said.add_argument("--seed", type=int, default=1, help="of the samples")
    said.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    return said


def _name(text: str) -> str:
    if not text or "+" in text:  # What follows a plus sign is an option.
        raise argparse.ArgumentTypeError(f"expected a name without '+', found {text!r}")
    return text


def device_of(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError) as failure:
        raise PlumblineError(f"--device: expected one that can be used, found {name!r}: {failure}") from None
    return device


def calibrate(options: argparse.Namespace) -> int:
    device = device_of(options.device)
    base_name = options.base or device_profile([device])
    base = load(base_name)
    if options.output and not Path(options.output).parent.is_dir():  # Before minutes of measuring.
        raise PlumblineError(f"--output: expected a directory that exists, found {options.output!r}")
    calibration = Calibrator(base, device, options.quick, options.seed).run()
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    if options.output:
        calibration.profile.name = options.name or f"{base.name}-calibrated"
        head = [
            f"{base_name} on {named}, PyTorch {torch.__version__}, seed {options.seed}: python -m plumbline.calibrate"
        ]
        head += [
            f"REFUTED {finding.claim}: {short(finding.claimed)} was claimed" for finding in calibration.contradictions
        ]
        comments = {finding.claim: finding.line() for finding in calibration.findings}
        Path(options.output).write_text(text_of(calibration.profile, comments, head + calibration.narrow))
    if options.json:
        facts = {"device": named, "torch": torch.__version__, "base": base_name, "output": options.output}
        print(json.dumps({**facts, **calibration.figures()}))
    else:
        print(table(calibration))
    return 2 if calibration.contradictions else 0


def main() -> int:
    try:
        return calibrate(parser().parse_args())
    except (PlumblineError, OSError) as failure:
        print(f"error: {str(failure).splitlines()[0]}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
