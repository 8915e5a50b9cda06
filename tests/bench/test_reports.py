"""Each report runs small, ends with one line of JSON, and has exactly its keys. Those of the service as a whole:
test_service_reports.py."""

import math
import re
import subprocess
import sys

import pytest
import torch
from operators_open import LEFT_OVER, SERIES
from report import commit, markdown
from small_reports import KEYS, OF_THE_SERVICE, ROOT, report


@pytest.mark.parametrize("name", [name for name in KEYS if name not in OF_THE_SERVICE])
def test_report(name: str) -> None:
    text, figures = report(name)
    assert list(figures) == KEYS[name]
    if name == "speed":
        assert figures.pop("memory_kept_mb") is None, "not when it is small"
    assert all(math.isfinite(value) for value in figures.values())
    if name == "scenarios":
        assert figures["scenarios"] == figures["correct"] == figures["cause_correct"]
        assert figures["false_type_ii"] == figures["missed_type_ii"] == figures["inconclusive"] == 0
        rivals = ("assert_close_correct", "fp64_rule_correct", "interval_correct", "perturbation_correct")
        assert figures["values_false_type_i"] == figures["values_false_type_ii"] == 0
        assert figures["values_correct"] >= max(figures[rule] for rule in rivals)
    if name == "equivalence":
        assert figures["pairs"] > 80 and figures["broken"] == 0
        assert min(figures["rewrites"], figures["mutations"]) >= 30
        assert figures["false_type_ii"] == figures["wrong_proven"] == figures["missed"] == 0
    if name == "power":
        assert figures["mutants"] >= 8
        assert figures["fp32_paired_resolution"] <= 1e-12
    if name == "coverage":
        vague = 0 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else 3  # Mamba, ResNet and U-Net (coverage.py).
        in_fp32 = (figures["models"] + 1) // 2
        assert figures["models"] >= 14 and figures["fp32_type_i"] == in_fp32
        assert figures["models"] - in_fp32 - vague <= figures["bf16_type_i"] <= figures["models"] - in_fp32
        assert figures["ops_opaque"] == 0
    if name == "soundness":
        assert figures["primitives_tested"] == figures["primitives"] > 50 and figures["violations"] == 0
        assert figures["bound_mutants_caught"] == figures["bound_mutants"] > 40
    if name == "operators":
        assert figures["operators"] > 40 and figures["samples"] > 60
        assert figures["false_type_ii"] == figures["controls_missed"] == figures["left_without_reason"] == 0
        assert figures["opaque_samples_pct"] <= 3 and figures["inconclusive_pct"] <= 1
        left = text.partition(LEFT_OVER)[2]
        assert "NO REASON IS KNOWN" not in left and SERIES in left  # special.i0e in bf16 is among the small cases.
    if name == "overhead":
        assert figures["bitwise_identical"] is figures["rotate_bitwise_identical"] is True
        assert figures["rotate_modules_audited"] == figures["rotate_modules"]


def test_a_report_as_a_section_of_a_document() -> None:
    command = [sys.executable, ROOT / "tests" / "bench" / "report.py", "observability", "--help"]
    assert "--markdown" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    section = markdown("./tests/report speed --seed 3", commit(), "what  measured\nspeed  1.0 x", {"speed": 1.0})
    where = r"\(commit [0-9a-f]{12}(, with changes)?, \d+ cores of .+, 20\d\d-\d\d-\d\d\):"
    assert re.match(rf"`\./tests/report speed --seed 3` {where}", section)
    assert section.endswith('```text\nwhat  measured\nspeed  1.0 x\n```\n\n`{"speed": 1.0}`')


def test_report_gpu() -> None:
    text, figures = report("gpu")
    if figures["device"] is None:
        assert list(figures) == ["device", "emulated"]
        assert "no device" in text
        figures = figures["emulated"]
    assert list(figures)[-3:] == ["primitives", "agree", "violations"] or "step_ratio" in figures
    assert figures["agree"] == figures["primitives"] > 10
    assert figures["violations"] == 0


def test_profile_tells_passes_and_kinds() -> None:
    """Stacks as perf prints them, from the innermost function on."""
    sys.path.insert(0, str(ROOT / "tests" / "bench"))
    from profiled import OTHER_KIND, OTHER_PASS, shares

    stacks = [
        [
            "dgemm_kernel",
            "plumbline::cpu::matmul",
            "plumbline::Replay::State::value",
            "plumbline::replay_pair",
            "audit_step",
        ],
        ["plumbline::cpu::pull_back", "plumbline::adjoint_envelopes", "plumbline::Gap::their_envelopes", "audit_step"],
        [
            "clear_page_erms",
            "asm_exc_page_fault",
            "plumbline::adjoint_envelopes",
            "plumbline::compute_bounds",
            "audit_step",
        ],
        ["sha256_block", "plumbline::digest", "plumbline::StepPipeline::audit_step"],
        ["__futex_wait", "pthread_cond_wait"],
    ]
    passes, kinds = shares("\n\n".join("\n".join(f"    7f00 {name}" for name in stack) for stack in stacks))
    assert passes == {"replay of the reference": 1, "sweep of the reference": 1, "sweep": 1, OTHER_PASS: 1}
    assert kinds == {"products": 1, OTHER_KIND: 1, "allocation": 1, "hashing": 1, "waiting": 1}
