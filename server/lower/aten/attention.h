// What kernels of fused attention have in common. q, k, v are [batch, heads, length, width]; a head of k and v may
// serve a group of consecutive heads of q.
#pragma once

#include <cstdint>
#include <optional>

#include "server/lower/call.h"

namespace plumbline::attention {

// The heads of k or v, each repeated for the heads of q that it serves. Throws Unsupported where they cannot be dealt.
Expr repeated(Call& call, Expr x, std::int64_t heads);
// The gradient of a head of k or v: the sum over those of its copies.
Expr summed_groups(Expr x, std::int64_t heads);

// The scores [batch, heads, queries, keys], and which of them count, a mask of booleans that expands to their shape;
// null: all do. A score that does not count is kept finite, so that its row is audited: -inf stands in no arithmetic.
struct Scores {
  Expr s;
  std::optional<Expr> counts = std::nullopt;
};
// With a mask of numbers added, where -inf forbids, or only what a mask of booleans allows.
Scores masked(Scores scores, Expr mask);
// Only keys that do not lie after their query: query i sees keys up to i + shift.
Scores causal(Scores scores, std::int64_t shift);

// 1 / sqrt(width of q), where the call gives no scale of its own. Throws Unsupported where probabilities are dropped.
double scale_of(Call& call, const Expr& q);

bool reduced_precision(Format format);

// e^(s - of), 0 where a score does not count. `own`: by a kernel of attention, whose error profiles state (fused_exp).
Expr exp_less(const Scores& scores, Expr of, bool own);

// The numerators e^(s - max) of the softmax, and their sums. Rows without any key have the maximum 0 and the sum 1, so
// that they give 0; `empty` says which they are.
struct Softmax {
  Expr numerators, maximum, empty, sums, total;
};
Softmax softmax_of(const Scores& scores, bool own_exp);

}  // namespace plumbline::attention
