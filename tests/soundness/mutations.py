"""Writes copies of the bound code in which mutations can be switched on, one at a time (mutant schemata).

usage: mutations.py KERNELS-PRIMITIVE-DIRECTORY OUTPUT-DIRECTORY

Each mutation replaces one expression of the code as it stands: `original` must occur exactly once after `anchor`. The
copy reads `(plumbline_mutant == N ? (mutated) : (original))`; mutant 0 is the code itself.
"""

import sys
from pathlib import Path
from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    file: str
    anchor: str
    original: str
    mutated: str
    primitives: str  # Among which it must be caught; by the registry's names.


FUNCTIONS = "exp log tanh rsqrt"
MUTATIONS = [
    # Storage rounding.
    Mutation("storage: half of u", "error.cc", "Storage primitive::storage(", "unit_roundoff(arithmetic.result)",
             "unit_roundoff(arithmetic.result) / 2", "cast add"),
    Mutation("storage: no eta", "error.cc", "Storage primitive::storage(", "half_smallest_subnormal(arithmetic.result)",
             "0.0",
             "cast sum"),
    Mutation("storage: flushing forgotten", "error.cc", "Storage primitive::storage(",
             "smallest_normal(arithmetic.result)",
             "half_smallest_subnormal(arithmetic.result)", "cast sum"),
    Mutation("storage: none where the range is the same", "error.cc", "Storage primitive::storage(",
             "narrow.precision >= wide.precision", "true", "cast sum matmul"),
    Mutation("storage: compute error forgotten", "error.cc", "Bound with_storage_rounding",
             "(e + (u * (std::fabs(t) + e) + eta))", "(u * (std::fabs(t) + e) + eta)", "sum matmul"),
    Mutation("storage: of the value forgotten", "error.cc", "Bound with_storage_rounding",
             "(u * std::fabs(t) + eta) * kInflate", "eta * kInflate", "sum constant"),
    Mutation("linear: storage rounding forgotten", "error.cc", "LocalError linear(", "rounding.u * (1 + relative)", "0",
             "cast add exp"),
    Mutation("linear: storage's eta forgotten", "error.cc", "LocalError linear(",
             "rounding.u * absolute + rounding.eta",
             "rounding.u * absolute", "cast mul"),
    # Elementwise.
    Mutation("linear: half of u", "error.cc", "LocalError linear(",
             "error.relative_u * roundoff(arithmetic)",
             "error.relative_u * roundoff(arithmetic) / 2", "add mul div"),
    Mutation("linear: absolute part forgotten", "error.cc", "LocalError linear(",
             "error.absolute + (error.eta ? underflow(arithmetic) : 0.0)", "(error.eta ? underflow(arithmetic) : 0.0)",
             "sigmoid erf exp"),
    Mutation("underflow: no eta", "error.cc", "double underflow(",
             "half_smallest_subnormal(arithmetic.compute)", "0.0", "mul matmul norm"),
    Mutation("underflow: half of eta", "error.cc", "double underflow(", "half_smallest_subnormal(arithmetic.compute)",
             "half_smallest_subnormal(arithmetic.compute) / 2", "mul"),
    Mutation("underflow: flushing forgotten", "error.cc", "double sum_underflow(",
             "arithmetic.profile->flush_subnormals", "false", "add mul"),
    Mutation("function: no eta", "error.cc", "LocalError of_function(", "error.relative * eta", "0.0",
             "exp reciprocal div pow"),
    Mutation("function: half an ulp less", "error.cc", "FunctionBound function_bound",
             "2 * error.ulp + rounding_factor(*arithmetic.profile)", "2 * error.ulp", FUNCTIONS),
    Mutation("function: an ulp taken for u", "error.cc", "FunctionBound function_bound",
             "2 * error.ulp + rounding_factor(*arithmetic.profile)", "error.ulp + 1", FUNCTIONS),
    Mutation("function: slope forgotten", "error.cc", "result.per_argument =",
             "error.slope", "0.0", "exp"),
    Mutation("function: beyond its arguments", "error.cc", "result.limit =", "stated.argument_max", "kInfinity",
             "sin cos"),
    Mutation("directed rounding taken for nearest", "error.cc", "double rounding_factor",
             "profile.rounding == Rounding::kNearest ? 1 : 2", "1", "add mul cast sum"),
    Mutation("add: half of u", "error.cc", "case kSub:", "{1, sum_underflow(arithmetic), false}",
             "Linear{0.5, sum_underflow(arithmetic), false}", "add sub"),
    Mutation("add: flushing forgotten", "error.cc", "case kSub:", "{1, sum_underflow(arithmetic), false}",
             "Linear{1, 0, false}", "add sub"),
    Mutation("mul: no eta", "error.cc", "case kMul:", "{1, 0, true}", "Linear{1, 0, false}", "mul"),
    Mutation("mul: half of u", "error.cc", "case kMul:", "{1, 0, true}", "Linear{0.5, 0, true}", "mul"),
    # Sums.
    Mutation("accumulation: half of u", "accumulation.cc", "return gathered(kind.c", "roundoff(arithmetic)",
             "roundoff(arithmetic) / 2", "sum cumsum scatter_add"),
    Mutation("accumulation: growth of directed rounding forgotten", "accumulation.cc", "double gathered", "x / (1 - x)",
             "0.5 * x", "sum"),
    Mutation("product: half of u", "accumulation.cc", "ProductError of_class", "roundoff(arithmetic)",
             "roundoff(arithmetic) / 2", "matmul"),
    Mutation("product: class forgotten", "accumulation.cc", "ProductError of_class",
             "kind.c * effective(kind.k, promoted ? kind.promote_every : terms)",
             "effective(kind.k, promoted ? kind.promote_every : terms)", "matmul"),
    Mutation("product: the last block forgotten", "accumulation.cc", "double effective", "std::ceil(n / k)",
             "std::floor(n / k)", "matmul"),
    Mutation("product: no eta", "accumulation.cc", "ProductError of_class", "terms * (eta + sum_underflow(arithmetic))",
             "0.0", "matmul"),
    Mutation("product: conversion of inputs forgotten", "accumulation.cc", "ProductError of_class", "2 * w + w * w",
             "0.0", "matmul"),
    Mutation("product: a conversion taken for rounding", "accumulation.cc", "ProductError product_error",
             "tf32.inputs_truncated ? 0x1p-10 : 0x1p-11", "0x1p-11", "matmul"),
    Mutation("tree: a level less", "accumulation.cc", "double accumulation_error", "static_cast<double>(n + 1)",
             "static_cast<double>(n)", "sum"),
    Mutation("tree: of a scan", "error_reduction.cc", "Bound error_cumsum", "of_any_order(arithmetic.profile->sum)",
             "arithmetic.profile->sum", "cumsum"),
    Mutation("sums: signed terms", "error_reduction.cc", "struct Absolute", "std::fabs(x)", "x", "sum cumsum"),
    Mutation("sum: a term less", "error_reduction.cc", "Bound error_sum", "terms - 1", "terms - 2", "sum"),
    Mutation("sum: flushing forgotten", "error_reduction.cc", "Bound error_sum",
             "static_cast<double>(terms) * sum_underflow(arithmetic)", "0.0", "sum"),
    Mutation("cumsum: flushing forgotten", "error_reduction.cc", "Bound error_cumsum", "s * f + lost", "s * f",
             "cumsum"),
    Mutation("cumsum: a term less", "error_reduction.cc", "Bound error_cumsum",
             "accumulation_error(untold, i, arithmetic)", "accumulation_error(untold, i - 1, arithmetic)", "cumsum"),
    Mutation("scatter_add: a term less", "error_reduction.cc", "Bound error_scatter_add", "terms - 1", "terms - 2",
             "scatter_add"),
    # Products.
    Mutation("matmul: a term less", "accumulation.cc", "std::int64_t product_terms",
             "(in.size() > 2 ? 2 : 0)", "(in.size() > 2 ? 2 : -1)", "matmul"),
    Mutation("matmul: a factor and what begins the sum cost no rounding", "accumulation.cc",
             "std::int64_t product_terms", "(in.size() > 2 ? 2 : 0)", "0", "matmul"),
    Mutation("matmul: what begins the sum forgotten", "error_reduction.cc", "Bound error_matmul",
             "std::fabs(c) + floor", "floor", "matmul"),
    Mutation("matmul: its factor forgotten", "error_reduction.cc", "Bound error_matmul", "scale * s", "s", "matmul"),
    Mutation("matmul: squares for norms", "error_reduction.cc", "Array block_norms", "std::sqrt(s)", "s",
             "matmul"),
    # Norm.
    Mutation("norm: root forgotten", "error_reduction.cc", "Bound error_norm", "shift + root + shift * root", "shift",
             "norm"),
    Mutation("norm: sum forgotten", "error_reduction.cc", "Bound error_norm", "shift + root + shift * root", "root",
             "norm"),
    Mutation("norm: underflow forgotten", "error_reduction.cc", "Bound error_norm", "relative * t + underflow",
             "relative * t", "norm"),
    # Statistics.
    Mutation("variance: error of the mean forgotten", "error_reduction.cc", "Bound error_variance_rsqrt",
             "std::max(dmu * dmu, (2 * std::sqrt(v) + beta) * beta)", "0.0", "variance_rsqrt"),
    Mutation("variance: two passes only", "error_reduction.cc", "Bound error_variance_rsqrt",
             "std::max(dmu * dmu, (2 * std::sqrt(v) + beta) * beta)", "dmu * dmu", "variance_rsqrt"),
    Mutation("variance: merges only", "error_reduction.cc", "Bound error_variance_rsqrt",
             "std::max(dmu * dmu, (2 * std::sqrt(v) + beta) * beta)", "(2 * std::sqrt(v) + beta) * beta",
             "variance_rsqrt"),
    Mutation("variance: half of the drift of the mean", "error_reduction.cc", "Bound error_variance_rsqrt",
             "summing * (n + 5) / (n * std::sqrt(12.0))", "summing * (n + 5) / (2 * n * std::sqrt(12.0))",
             "variance_rsqrt"),
    Mutation("variance: its own sum forgotten", "error_reduction.cc", "Bound error_variance_rsqrt",
             "(summing + 8 * u) * v", "0.0", "variance_rsqrt"),
    Mutation("variance: root forgotten", "error_reduction.cc", "Bound error_variance_rsqrt",
             "shift + root + shift * root", "shift", "variance_rsqrt"),
    Mutation("variance: one end alone", "error_reduction.cc", "Bound error_variance_rsqrt",
             "std::max(y / (s * (1 + s)), upwards)", "y / (s * (1 + s))", "variance_rsqrt"),
    Mutation("variance: the wrong end", "error_reduction.cc", "Bound error_variance_rsqrt", "std::sqrt(1 - y)",
             "std::sqrt(1 + 3 * y)", "variance_rsqrt"),
    # Softmax.
    Mutation("softmax: sum forgotten", "error_softmax.cc", "double sum_error", "w + m.sum * (1 + w)", "w",
             "softmax log_softmax"),
    Mutation("softmax: weighted errors forgotten", "error_softmax.cc", "double sum_error",
             "weighted + m.terms * m.exp_absolute", "m.terms * m.exp_absolute", "softmax log_softmax"),
    Mutation("softmax: rounding of the argument forgotten", "error_softmax.cc", "inline double exponential_error",
             "u * d * (1 + u * d)", "0.0", "softmax"),
    Mutation("softmax: exponential forgotten", "error_softmax.cc", "inline double exponential_error",
             "a + own + a * own",
             "a", "softmax"),
    Mutation("softmax: division forgotten", "error_softmax.cc", "struct SoftmaxRow", "2.001 * u + s", "s",
             "softmax"),
    Mutation("softmax: no underflow", "error_softmax.cc", "struct SoftmaxRow", "2 * m.exp_absolute + m.tiny", "0.0",
             "softmax"),
    Mutation("log_softmax: logarithm forgotten", "error_softmax.cc", "struct LogSoftmaxRow",
             "m.log * (std::fabs(log_sum) + shift)", "0.0", "log_softmax"),
    Mutation("log_softmax: sum forgotten", "error_softmax.cc", "struct LogSoftmaxRow",
             "s < 1 ? s / (1 - s) : (s == s ? kInfinity : s)", "0.0", "log_softmax"),
    Mutation("log_softmax: maximum forgotten", "error_softmax.cc", "struct LogSoftmaxRow",
             "std::max(max - xr[i], std::fabs(xr[i] - tr[i]))", "(max - xr[i])", "log_softmax"),
    Mutation("log_softmax: differences forgotten", "error_softmax.cc", "struct LogSoftmaxRow",
             "std::fabs(tr[i])", "0.0", "log_softmax"),
    # Sources and flushed operands.
    Mutation("constant: half of its error", "source.cc", "Bound error_constant",
             "std::max(std::fabs(computed - c), std::fabs(held - c))",
             "0.5 * std::max(std::fabs(computed - c), std::fabs(held - c))", "constant"),
    Mutation("constant: the result's format forgotten", "source.cc", "Bound error_constant",
             "computed == c && held == c", "computed == c", "constant"),
    Mutation("iota: the step's rounding forgotten", "source.cc", "Bound error_iota", "7.3 * increment", "0.0", "iota"),
    Mutation("iota: the ends' rounding forgotten", "source.cc", "Bound error_iota",
             "4.3 * start",
             "0.0", "iota"),
    Mutation("flushed operands forgotten", "registry.cc", "Bound with_flushing",
             "primitive::element::flushed(v, tiny)", "0.0", "add mul exp max"),
]  # fmt: skip


def mutate(text: str, file: str) -> str:
    """The file with all its mutations in it; a later one may stand on the same expression."""
    edits: dict[tuple[int, int], list[tuple[int, Mutation]]] = {}
    for number, m in enumerate(MUTATIONS, 1):
        if m.file != file:
            continue
        start = text.find(m.anchor)
        at = text.find(m.original, start)
        if start < 0 or at < 0:
            sys.exit(f'{file}: mutation "{m.name}": no `{m.original}` after `{m.anchor}`: the code has changed')
        edits.setdefault((at, at + len(m.original)), []).append((number, m))
    inner: set[tuple[int, int]] = set()
    for low, high in sorted(edits, reverse=True):
        if any(low < a < high or low < b < high for a, b in inner):
            sys.exit(f"{file}: mutations overlap at `{text[low:high]}`")
        inner.add((low, high))
        original = text[low:high]
        choice = f"Linear{original}" if original.startswith("{") else f"({original})"
        for number, m in edits[low, high]:
            mutated = m.mutated if m.mutated.startswith("Linear") else f"({m.mutated})"
            choice = f"(plumbline_mutant == {number} ? {mutated} : {choice})"
        text = text[:low] + choice + text[high:]
    return "extern int plumbline_mutant;\n" + text


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    for file in dict.fromkeys(m.file for m in MUTATIONS):
        (target / file).write_text(mutate((source / file).read_text(), file))
    rows = [f'    {{"{m.name}", "{m.primitives}"}},\n' for m in MUTATIONS]
    (target / "mutants.inc").write_text("".join(rows))


if __name__ == "__main__":
    main()
