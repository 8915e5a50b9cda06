// The adjoint envelopes: how far rounding could have moved a scalar functional of the taps.
//
// Let f be a functional <x, taps>. To first order, an execution whose node k deviates by e_k from the exact function
// of its own inputs moves f by sum_k <a_k, e_k>, a_k the adjoint of f at node k. Adjoints of one node are summed over
// its consumers before the absolute value is taken: an error shared by all consumers of a value (a mean, a maximum
// subtracted from a row) cancels as it does in the execution.
//
// Worst case: with |e_k| <= delta_k elementwise, |f - f_exact| <= E = sum_k <|a_k|, delta_k>: FIRST_ORDER, whatever the
// executions within delta do.
//
// Statistical: roundings are zero-mean events within half-widths c_k, given all that came before, beside a bias
// (kernels/primitive/noise.h). Then |f - f_exact| <= bias + lambda sqrt(squares) but for a probability of
// 2 exp(-lambda^2 / 2) (Hoeffding 1963, Azuma 1967). Events shared by equal operands are merged first (events.h).
//
// Both at u = 2^-53 bound our own replay; rho is twice that. Chance is worked out for its roundings where a probe is of
// one element (a loss), and where the target computes in fp64 as well. Elsewhere, and for probes of mathematics alone,
// they are bias, which is above what chance would say, cheaper, and still far below an fp32 rounding.
//
// What the first order leaves out is estimated by the change of the adjoints on the way from the exact to a rounded
// execution: sum_k <|a_k(rounded) - a_k(exact)|, delta_k>. It matters where f is insensitive to first order.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "server/bound/envelope/probe.h"
#include "server/bound/envelope/slack.h"
#include "server/bound/replay/replay.h"
#include "server/bound/replay/tapped.h"
#include "server/bound/replay/terms.h"

namespace plumbline {

struct Envelope {
  double error = 0;               // E, worst case.
  double rho = 0;                 // The error of our own fp64 replay, worst case.
  double python = 0;              // The part of numbers and data that Python computed, worst case (Slack).
  double freedom = 0;             // The part of items that nothing of the other program is (Slack), worst case.
  double replaced = 0;            // What items that something stands for would change (Slack), worst case.
  double read = 0;                // <x, M> of the products that were read by their factors.
  std::vector<double> by_origin;  // E's parts, by Graph::origins.
  Noise noise;                    // Statistical: bias and squares of the execution,
  Noise own_noise;                // of our own replay.
  std::vector<Noise> noise_by_origin;
};

// bias + lambda sqrt(squares).
double statistical(const Noise& noise, double lambda);

// lambda for `tests` functionals that together raise a false alarm with probability at most alpha: two-sided,
// sqrt(2 ln(2 tests / alpha)).
double hoeffding_lambda(double tests, double alpha);

// The executions of which the sweep asks: the target's, our replay's, or both.
enum class Executions { kTarget, kOwn, kBoth };

// The target's alone, where our replay's error, at u = 2^-53, is below the inflation of every local error: no node
// computes in fp64. Otherwise both.
Executions executions_of(const Graph& graph);

// Error of our own replays, summed over `envelopes` (of one replay, or of the two that are compared): the worst case,
// or ten times what chance allows if that is less. Ten, since it stands between two programs and an accusation.
double replay_error(const std::vector<const Envelope*>& envelopes, double lambda);

// What a sweep looks at more closely than most need.
struct Closely {
  Magnitudes magnitudes = Magnitudes::kByNorms;
  Unmoved unmoved = {};
};

// One reverse sweep for all probes. `replay` must hold the values that consumers saw. `slack`: what is not
// known exactly. `last`: values are given up as soon as the sweep has passed them, and nothing of `replay` may be read
// afterwards.
//
// `by_factors`: products that are not computed, M = AB. What a probe with weights y z^T says of one is read where they
// pass it, y^T M z = (y^T A)(B z) (Freivalds 1977), and added to `read`. What it takes of M beside, how far partial
// sums reach, is taken of what was observed: an execution's own partial sums go by its own result. Reading M and the
// observed result T one by one instead of as T - M adds to the envelope: N roundings of 2^-53 of |y|^T |A||B| |z|, N
// those of the sums over y, the terms of the product, z, and T. The product's charge holds at least `factor` times
// that (product_error). Not where some node computes in fp64.
std::vector<Envelope> adjoint_envelopes(const Graph& graph, const Replay& replay, const std::vector<Probe>& probes,
                                        const Profile& profile, Executions executions = Executions::kBoth,
                                        const Slack& slack = {}, bool last = false,
                                        const TappedProducts& by_factors = {}, const Closely& closely = {});

// The same of one probe until `enough`, which is asked before each node, says so: each part of the envelope is then at
// most what it would be in the end.
Envelope adjoint_envelope_until(const std::function<bool(const Envelope&)>& enough, const Graph& graph,
                                const Replay& replay, const Probe& probe, const Profile& profile, Executions executions,
                                const Slack& slack);

// The second-order remainder of each probe, between two replays of one graph on the same leaves.
std::vector<double> second_order_remainders(const Graph& graph, const Replay& exact, const Replay& rounded,
                                            const std::vector<Probe>& probes, const Profile& profile);

}  // namespace plumbline
