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
    primitives: str  # Among which it must be caught; by the registry's names. Of a radius: by every one of them.


RADII = ("radius.cc", "radius_reduction.cc", "rule/radius.h")  # What carries radii; the other files bound local errors.
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
    Mutation("function: no eta", "error.cc", "LocalError element::of_function(", "error.relative * eta", "0.0",
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
    Mutation("add: half of u", "error.cc", "RoundedSum::of(", "{1, sum_underflow(arithmetic), false}",
             "Linear{0.5, sum_underflow(arithmetic), false}", "add sub"),
    Mutation("add: flushing forgotten", "error.cc", "RoundedSum::of(", "{1, sum_underflow(arithmetic), false}",
             "Linear{1, 0, false}", "add sub"),
    Mutation("mul: no eta", "error.cc", "Multiplication::of(", "{1, 0, true}", "Linear{1, 0, false}", "mul"),
    Mutation("mul: half of u", "error.cc", "Multiplication::of(", "{1, 0, true}", "Linear{0.5, 0, true}", "mul"),
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
             "std::max({std::fabs(computed - c), std::fabs(held - c), own})",
             "0.5 * std::max({std::fabs(computed - c), std::fabs(held - c), own})", "constant"),
    Mutation("constant: the result's format forgotten", "source.cc", "Bound error_constant",
             "computed == c && held == c && own == 0", "computed == c && own == 0", "constant"),
    Mutation("iota: the step's rounding forgotten", "source.cc", "Bound error_iota", "7.3 * increment", "0.0", "iota"),
    Mutation("iota: the ends' rounding forgotten", "source.cc", "Bound error_iota",
             "4.3 * start",
             "0.0", "iota"),
    Mutation("flushed operands forgotten", "registry.cc", "Bound with_flushing",
             "primitive::element::flushed(v, tiny)", "0.0", "add mul exp max"),
    # Radii of elementwise primitives.
    Mutation("radius: a quarter", "radius.cc", "struct Radius {", "up(R::radius(operands...))",
             "0.25 * up(R::radius(operands...))",
             "sign exp expm1 log log1p sqrt rsqrt reciprocal tanh erf sigmoid floor ceil round trunc isfinite "
             "logical_not add sub mul div pow atan2 fmod less less_equal greater greater_equal equal not_equal "
             "logical_and logical_or select"),
    Mutation("radius: a quarter, of one operand", "radius.cc", "struct OfRadiusAlone", "up(R::radius(0, r, 0))",
             "0.25 * up(R::radius(0, r, 0))", "neg abs sin cos cast"),
    Mutation("radius: a quarter, of two operands", "radius.cc", "struct OfRadiusAlone",
             "up(R::radius(0, ra, 0, rb, 0))", "0.25 * up(R::radius(0, ra, 0, rb, 0))", "max min"),
    Mutation("monotone: the upper end forgotten", "rule/radius.h", "struct Monotone",
             "larger(distance(at_low, t), distance(at_high, t))", "distance(at_low, t)", "expm1 erf"),
    Mutation("monotone: the lower end forgotten", "rule/radius.h", "struct Monotone",
             "larger(distance(at_low, t), distance(at_high, t))", "distance(at_high, t)",
             "log log1p sqrt rsqrt erf"),
    Mutation("gentle: to first order", "rule/radius.h", "struct Gentle", "0.7183", "0.0",
             "exp tanh sigmoid"),
    Mutation("gentle: tanh bends as exp does", "rule/radius.h", "struct Gentle", "(kBend * r)",
             "r", "tanh"),
    Mutation("gentle: far balls taken for near ones", "rule/radius.h", "struct Gentle", "(kBend * r <= 1)", "true",
             "exp tanh sigmoid"),
    Mutation("step: the upper end forgotten", "rule/radius.h", "struct Step",
             "std::fabs(F::value(above(x, r)) - t)", "0.0", "sign floor ceil round trunc"),
    Mutation("step: the lower end forgotten", "rule/radius.h", "struct Step",
             "std::fabs(F::value(below(x, r)) - t)", "0.0", "sign floor ceil round trunc"),
    Mutation("decision: never open", "rule/radius.h", "struct Decision", "open(x, r)", "false", "logical_not"),
    Mutation("decision: by the first alone", "rule/radius.h", "struct Decision", "open(a, ra) || open(b, rb)",
             "open(a, ra)", "logical_and logical_or"),
    Mutation("finite: never open", "rule/radius.h", "struct Finite", "above(std::fabs(x), r) < kInfinity", "true",
             "isfinite"),
    Mutation("inverse: to first order", "rule/radius.h", "struct Inverse", "over(over(r, std::fabs(x)), nearest)",
             "over(over(r, std::fabs(x)), std::fabs(x))", "reciprocal"),
    Mutation("inverse: the pole forgotten", "rule/radius.h", "struct Inverse", "nearest > 0", "nearest != 0",
             "reciprocal"),
    Mutation("sum: the larger alone", "rule/radius.h", "struct Sum", "ra + rb", "larger(ra, rb)", "add sub"),
    Mutation("product: to first order", "rule/radius.h", "struct Product", "times(std::fabs(b) + rb, ra)",
             "times(std::fabs(b), ra)", "mul"),
    Mutation("quotient: to first order", "rule/radius.h", "struct Quotient", "over(ra, nearest)",
             "over(ra, std::fabs(b))", "div"),
    Mutation("quotient: the divisor's radius forgotten", "rule/radius.h", "struct Quotient",
             "times(quotient, over(rb, nearest))", "0.0", "div"),
    Mutation("quotient: the pole forgotten", "rule/radius.h", "struct Quotient", "nearest > 0", "nearest != 0",
             "div"),
    Mutation("power: a corner forgotten", "rule/radius.h", "struct Power", "visit(high, most_power)",
             "visit(low, most_power)", "pow"),
    Mutation("angle: half of the turn", "rule/radius.h", "struct Angle", "std::fabs(t) + kPi", "kPi", "atan2"),
    Mutation("angle: two corners forgotten", "rule/radius.h", "struct Angle",
             "larger(reach(bottom, left), reach(bottom, right))", "0.0", "atan2"),
    Mutation("extreme: the first alone", "rule/radius.h", "struct Extreme", "larger(ra, rb)", "ra", "max min"),
    Mutation("remainder: the divisor's radius forgotten", "rule/radius.h", "struct Remainder",
             "times(std::fabs(q), rb)", "0.0", "fmod"),
    Mutation("remainder: whole parts of the lower end", "rule/radius.h", "struct Remainder",
             "q == std::trunc(high / nearest)", "true", "fmod"),
    Mutation("comparison: the larger alone", "rule/radius.h", "struct Comparison", "up(reach)", "up(larger(ra, rb))",
             "less less_equal greater greater_equal"),
    Mutation("choice: never open", "rule/radius.h", "struct Choice", "open(c, rc)", "false", "select"),
    Mutation("choice: the other side", "rule/radius.h", "struct Choice", "c != 0 ? ra : rb", "c != 0 ? rb : ra",
             "select"),
    # Radii of the others.
    Mutation("sums of radii: a quarter", "radius_reduction.cc", "Bound inflated(", "up(v * sums)",
             "0.25 * up(v * sums)", "sum amax amin norm cumsum gather_rows scatter_add"),
    Mutation("argmax: of two it is the first", "radius_reduction.cc", "Bound radius_argmax(", "n <= 1", "n <= 2",
             "argmax"),
    Mutation("argmax: a quarter", "radius_reduction.cc", "Bound radius_argmax(",
             "static_cast<double>(out.count() == 0 ? 0 : x.count() / out.count())",
             "0.25 * static_cast<double>(out.count() == 0 ? 0 : x.count() / out.count())", "argmax"),
    Mutation("argsort: what comes before forgotten", "radius_reduction.cc", "Bound radius_argsort(", "before > high",
             "true", "argsort"),
    Mutation("argsort: a quarter", "radius_reduction.cc", "Bound radius_argsort(", "static_cast<double>(length)",
             "0.25 * static_cast<double>(length)", "argsort"),
    Mutation("variance: a quarter of the reach", "radius_reduction.cc", "Bound radius_variance_rsqrt(",
             "up(norm / std::sqrt(n))", "0.25 * up(norm / std::sqrt(n))", "variance_rsqrt"),
    Mutation("variance: the smaller side alone", "radius_reduction.cc", "Bound radius_variance_rsqrt(",
             "std::max(most - at(sigma + own), at(sigma - own) - least)", "(at(sigma - own) - least)",
             "variance_rsqrt"),
    Mutation("matmul: of one factor", "radius_reduction.cc", "Bound radius_matmul(", "up(p + q + 4 * k * kLeast)",
             "up(p + 4 * k * kLeast)", "matmul"),
    Mutation("matmul: what begins the sum", "radius_reduction.cc", "Bound radius_matmul(", "up(scaled + moved + c)",
             "up(scaled + moved)", "matmul"),
    Mutation("matmul: its factor", "radius_reduction.cc", "Bound radius_matmul(", "times(factor_radius, p + r)", "0.0",
             "matmul"),
    Mutation("softmax: the upper end forgotten", "radius_reduction.cc", "struct SoftmaxRow",
             "std::max(high - pr[i], pr[i] - low)", "(pr[i] - low)", "softmax"),
    Mutation("softmax: the lower end forgotten", "radius_reduction.cc", "struct SoftmaxRow",
             "std::max(high - pr[i], pr[i] - low)", "(high - pr[i])", "softmax"),
    Mutation("log_softmax: the log of the sum forgotten", "radius_reduction.cc", "struct LogSoftmaxRow",
             "up(rr[i] + largest)", "up(rr[i])", "log_softmax"),
    Mutation("window: no radius", "radius_reduction.cc", "Bound radius_window(",
             "traits(Primitive::kWindow).evaluate(attributes, out.shape(), {&radii[0].values, 1})",
             "Array::zeros(out.shape())", "window"),
    Mutation("assemble: a piece forgotten", "radius_reduction.cc", "Bound radius_assemble(", "radii[i].values",
             "i > 0 ? radii[i].values : Array::zeros(centres[i].shape())", "assemble"),
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
    for file in dict.fromkeys(m.file for m in MUTATIONS):
        copy = target / "kernels" / "primitive" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(mutate((source / file).read_text(), file))
    rows = [f'    {{"{m.name}", "{m.primitives}", {str(m.file in RADII).lower()}}},\n' for m in MUTATIONS]
    (target / "mutants.inc").write_text("".join(rows))


if __name__ == "__main__":
    main()
