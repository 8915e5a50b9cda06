"""The keys of each report's line of JSON, and how the tests run one: small."""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEYS = {
    "scenarios": [
        *("scenarios", "correct", "false_type_ii", "missed_type_ii", "inconclusive"),
        *("cause_correct", "located", "bugs"),
        *("values_correct", "values_false_type_i", "values_false_type_ii", "values_inconclusive"),
        *("assert_close_correct", "fp64_rule_correct", "interval_correct", "perturbation_correct"),
    ],
    "overhead": [
        *("idle_pct", "sampled_1_in_100_pct", "audited_step_ratio", "bitwise_identical"),
        *("rotate_time_ratio", "rotate_time_ratio_error", "rotate_processor_ratio"),
        *("rotate_modules", "rotate_modules_audited", "rotate_bitwise_identical", "capture_us_per_op"),
    ],
    "power": [
        *("mutants", "flagged", "located"),
        *("fp32_loss_resolution", "bf16_loss_resolution", "fp32_paired_resolution", "resolutions_hold"),
    ],
    "coverage": ["models", "steps", "ops_seen", "ops_opaque", "fp32_type_i", "bf16_type_i"],
    "soundness": [
        *("primitives", "primitives_tested", "executions", "violations"),
        *("bound_mutants", "bound_mutants_caught"),
    ],
    "tightness": [
        *("elementwise_max", "matmul_bf16_k1024", "matmul_bf16_k4096", "min_witness_ratio"),
        *("statistical_ratio", "statistical_violations", "statistical_expected"),
    ],
    "equivalence": [
        *("pairs", "rewrites", "mutations", "false_type_ii", "wrong_proven", "missed"),
        *("inconclusive_pct", "cause_pct", "located_pct", "assert_close_correct", "fp64_rule_correct"),
        *("plumbline_correct", "labelled", "latent_named_pct", "broken"),
    ],
    "operators": [
        *("operators", "samples", "opaque_samples_pct", "inconclusive_pct", "false_type_ii", "controls_missed"),
        *("inconclusive", "left_without_reason"),
    ],
    "programs": [
        *("programs", "refused", "in_16_bits", "steps", "answered_whole_pct", "opaque_pct", "inconclusive_pct"),
        *("false_type_ii", "unjudged", "bugs", "bugs_found", "bugs_located", "twins_whole"),
        "bitwise_changed",
    ],
    "service": [
        *("kill9_rounds", "acked_lost", "duplicates", "disk_full_rounds", "silent_gaps", "fuzz_execs", "fuzz_crashes"),
        *("attacks", "attacks_survived", "bad_inputs", "clear_errors", "streams", "streams_ok", "hostile_streams"),
        *("p99_verdict_ratio", "p99_elsewhere_ratio", "p99_competing_ratio", "hostile_calls_per_s", "hostile_kb_per_s"),
        *("unauthorised_attempts", "unauthorised_let_in", "soak_minutes", "rss_growth_pct"),
    ],
    "observability": ["panels", "panels_with_data", "rules", "rules_tested", "first_type_ii_alerts"],
    "sizing": [
        *("bytes_per_verdict_least", "bytes_per_verdict_most", "bytes_per_tap", "parquet_bytes_per_verdict"),
        *("small_steps_per_second", "audits_per_second_gpt", "metrics_series"),
    ],
    "scaleout": [
        *("daemons", "jobs", "multi_node_jobs", "verdicts", "lost", "duplicates"),
        *("kills", "partitions", "jetstream_wipes", "pairs_same_as_single_node", "multi_node_same_as_single"),
        *("throughput_3_over_1", "history_rows_per_s", "bytes_between_nodes_per_step"),
        *("simulated_daemons", "simulated_lost", "simulated_behind_s"),
    ],
    "upgrade": ["from", "daemons", "verdicts", "lost", "duplicates", "refused"],
    "people": [
        *("readme_lines", "doc_commands", "doc_commands_run", "page_kb", "page_painted_ms", "console_errors"),
        *("figures_checked", "figures_wrong", "packages", "packages_installed_clean", "mypy_errors"),
    ],
    "speed": [
        "verdict_vs_fp64",
        "paired_vs_fp64",
        "two_programs_vs_fp64",
        "replay_vs_fp64",
        "ingest_grpc_ratio",
        "ingest_shm_ratio",
        "memory_ratio",
        *("llama_verdict_vs_fp64", "llama_paired_vs_fp64", "llama_two_programs_vs_fp64", "llama_memory_ratio"),
        "memory_kept_mb",
        *("autocast_verdict_vs_fp64", "autocast_two_programs_vs_fp64", "autocast_memory_ratio"),
        *("jobs_scaling", "compare_seconds_small", "compare_seconds_running"),
        *("resnet_verdict_vs_fp64", "resnet_two_programs_vs_fp64", "resnet_memory_ratio"),
        "jobs_scaling_apart",
    ],
}


# Reports of the service as a whole.
OF_THE_SERVICE = ["service", "observability", "sizing", "scaleout", "upgrade", "people"]

OPTIONS = {name: ["--device", "cpu"] for name in ("operators", "programs")}


def report(name: str) -> tuple[str, dict]:
    environment = {"PLUMBLINE_BUILD": str(ROOT / "build" / "release"), **os.environ}
    command = [str(ROOT / "tests" / "report"), name, "--small", *OPTIONS.get(name, [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    table, _, last = done.stdout.rstrip("\n").rpartition("\n")
    assert table.strip(), "no table above the figures"
    return table, json.loads(last)
