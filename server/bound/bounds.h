// Everything numeric that a verdict rests on, for one step: what each question measured and what it may be.
// compute.h fills it; the rule that turns it into a Verdict is judge/judge.h's.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/bound/envelope/adjoint.h"
#include "server/bound/envelope/probe.h"
#include "server/bound/findings/guards.h"
#include "server/bound/findings/hazards.h"
#include "server/bound/findings/localize.h"
#include "server/bound/match/correspondence.h"
#include "server/bound/pair/aligned.h"
#include "server/bound/replay/python_numbers.h"
#include "server/bound/value/differences.h"

namespace plumbline {

// One question about one functional: |deviation| <= envelope, both relative to the functional's scale. The envelope is
// the smaller of the worst case and the statistical one.
struct Answer {
  bool asked = false;
  double deviation = std::numeric_limits<double>::quiet_NaN();
  double envelope = std::numeric_limits<double>::quiet_NaN();
  double worst_case = std::numeric_limits<double>::quiet_NaN();
  double python = 0;  // The part of both that numbers computed by Python own (python_numbers.h).
  // The part of the envelope that is neither the rounding of the result to the format that holds it, which no execution
  // is without, nor a freedom that nothing needed. NaN means that it is not known apart.
  double doubt = std::numeric_limits<double>::quiet_NaN();
  // The rounding model says that a legal execution deviates by more than bias + x spread with a probability of at most
  // 2 exp(-x^2 / 2), whatever x >= 0 is (adjoint.h). NaN means that it was not asked.
  double bias = std::numeric_limits<double>::quiet_NaN();
  double spread = std::numeric_limits<double>::quiet_NaN();
  // In their place, of elements that were compared one by one: the least likely one's chance (kernels/comparison.h).
  double least_chance = std::numeric_limits<double>::quiet_NaN();

  // The part of both that items without a counterpart and open decisions own (match/), and whether the deviation is
  // within the envelope by that alone.
  double freedom = 0;
  bool by_freedom = false;
  // It is so by the jumps of open decisions alone, if some came out otherwise than our replays took them.
  bool by_jumps = false;

  // By so much what the other program computes in the place of an item would change the value, relative to the scale:
  // no less is told apart, though it is no part of the envelope.
  double replaced = 0;

  bool confirmed = false;  // In at least 100 bits (pair/confirm.h).

  double tests = 1;  // It was chosen among so many.
  // For a bare value, it says what else may be the reason, though no formula is (value/values.h).
  std::string excuse = {};

  // It rests on the rounding model: no worst case stands behind it.
  bool statistical() const { return envelope < worst_case; }
  bool beyond_worst_case() const { return !(deviation <= worst_case); }

  // Doubt above a tenth of the scale says nothing (kernels/README.md, "Envelopes"), and neither does NaN.
  bool vacuous() const { return asked && !((std::isnan(doubt) ? envelope : doubt) <= 0.1); }
  // A comparison with NaN never passes.
  bool passed() const { return asked && !vacuous() && deviation <= envelope; }
  // What replays in more bits confirm is beyond its bound however large that is; freedom is of first order.
  bool failed() const { return asked && !(deviation <= envelope) && (!vacuous() || (confirmed && freedom <= 0.1)); }
  // Failed, and no number whose computation is not known may be the reason.
  bool disproved() const { return failed() && python == 0; }
  double margin() const { return deviation == 0 ? 0 : deviation / envelope; }
};

// How many envelopes of the target's own trace another formula of its mathematics may need (value/values.h).
inline constexpr double kValueFormulas = 2;

// What was found about one functional of the taps: a scalar tap, a tensor tap as a whole, or a probe.
struct Finding {
  std::string name;
  std::vector<std::size_t> taps;  // They are taps of the target's graph.
  std::uint64_t elements = 0;
  bool proven = false;  // The execution envelope is an enclosure, elementwise, not a first-order one.
  Answer execution;     // Q2: |T - M_T| against E_T + rho_T.
  Answer mathematics;   // Q3: |M_T - M_R| against rho_T + rho_R.
  Answer value;         // Bare reference: |R - M_T| against E_T + rho_T + R's storage rounding.
  // The largest envelope of a question about all elements of the tap: a common factor may need more than random signs.
  double value_resolution = 0;
  // At a scalar tap or the worst element.
  std::uint64_t worst_element = 0;
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
  double observed = std::numeric_limits<double>::quiet_NaN();
  double reference = std::numeric_limits<double>::quiet_NaN();
  double interval_radius = std::numeric_limits<double>::quiet_NaN();
  double drift = std::numeric_limits<double>::quiet_NaN();
  double explained = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> by_origin;  // Parts of the execution envelope.
};

// A tap or leaf that is not finite, and what the range lane says of it.
struct RangeFinding {
  std::string tap;
  bool exact_finite = true;       // Exact arithmetic stays finite there.
  bool rounded_agrees = true;     // The rounded replay has the same infinities and NaNs.
  bool straddles = false;         // A value on the way lies so close to its format's limit that rounding decides.
  bool borderline = false;        // What overflows first lies within its enclosure of its format's limit.
  bool reference_finite = false;  // The reference's value is finite, computed in the same format.
  std::optional<NodeId> first;    // First node that is not finite in the rounded replay, or produced the tap.
};

struct IllegalValue {
  NodeId node = 0;
  double deviation = 0, bound = 0;  // Absolute, at the worst element.
  std::uint64_t element = 0, elements = 0;
  // Where the function's range, by the profile, is what was left: the range and the value.
  bool out_of_range = false;
  double low = 0, high = 0, observed = 0;
};

// The gradient, update or state of a parameter that both programs have, or other state that both hold, which one of
// them does not give.
struct MissingTap {
  std::string tap;
  // In the program that has it: where it leaves what the other computes, or the parameter's first use if the other has
  // none.
  NodeId node = 0;
  bool in_reference = false;
  bool unused = false;     // The other program never takes the parameter.
  bool held = false;       // The other program holds what it is of, and leaves that as it was.
  bool by_python = false;  // Python may have decided that, by numbers that rounding moves.
};

// What of the reference no legal execution gives; PROVEN, by forward enclosures between observed values.
struct ReferenceFault {
  NodeId node = 0;
  std::string tap;  // Empty: an operation's own result.
  double deviation = 0, bound = 0;
};

// Under which a bare reference value is nearest to the target's mathematics (value/readings.h).
struct ValueReading {
  std::string words;
  bool policy = false;
  Format format = Format::kUnknown;
};

// Whether programs agree only as far as data and buffers that both hold are roundings themselves (pair/shared_items.h):
// those that they use for one another, or any, by which nothing is decided.
enum class RoundedItems : std::uint8_t { kNone, kExchanged, kOpen };

// The same of numbers that one program alone is given (pair/reconcile.h): as far as they may be rounded, or as 1 - x
// may for a small x, if somebody rounded it before, by which nothing is decided.
enum class FreeNumbers : std::uint8_t { kNone, kRounded, kOpen };

struct Bounds {
  double alpha = 1e-3;  // Probability of a false alarm that the step may spend.
  std::vector<Finding> findings;
  std::vector<RangeFinding> range;
  std::vector<IllegalValue> illegal_values;  // Observed values outside of their enclosures: PROVEN.
  std::vector<NodeId> unjudged;  // Observed results of operations told by a formula, whose enclosures say nothing.
  std::uint64_t products_by_rows = 0;  // Observed ones of which not every element was looked at.
  std::vector<NodeId> illegal_decisions;
  std::vector<GuardFinding> guards;
  std::vector<HazardFinding> hazards;
  std::vector<std::size_t> untrained;  // Taps of gradients whose parameter the step left alone (untrained.h).
  std::uint64_t decisions = 0, unstable = 0;
  bool all_taps_equal_reference = false;       // Bitwise, against bare values or the reference's observed taps.
  std::vector<PatternFinding> value_patterns;  // They say where infinities and NaNs part from those of bare values.
  std::optional<ValueReading> value_reading;   // None: as the target's own trace.
  // Pairing.
  bool paired = false;
  bool cuts_complete = true;  // Every opaque call has its counterpart in the other graph (transplant.h).
  // The programs agree only if this is what the other computes (match/computed.h), or keeps between steps (kept.h), of
  // which there is no evidence.
  std::optional<MatchedItem> taken_for;
  // Data that a program keeps between steps under no name, on which all that failed hangs (pair/kept.h).
  std::optional<MatchedItem> hangs_on_kept;
  // An item that would explain the accusation, were it half known (pair/half_known.h): then nothing is proven.
  std::optional<MatchedItem> hangs_on;
  FreeNumbers free_numbers = FreeNumbers::kNone;
  RoundedItems rounded_items = RoundedItems::kNone;
  std::optional<std::uint32_t>
      indifferent_call;                       // Origin of an opaque call with other inputs and hardly other outputs.
  std::optional<std::uint32_t> unequal_call;  // It has equal inputs and other outputs.
  std::size_t transplanted = 0;               // Opaque calls whose inputs were compared and whose outputs were shared.
  Correspondence match;
  std::uint64_t shared_decisions = 0;   // Elements that came out otherwise in the reference, and follow the target's.
  std::uint64_t compared_elements = 0;  // So many elements of taps were compared one by one in mathematics.
  std::vector<UncertainNumber> uncertain_numbers;  // They are both programs'.
  std::vector<std::string> unpaired_taps;          // In one trace only.
  std::optional<ReferenceFault> reference_fault;
  std::vector<MissingTap> missing_taps;  // Among those whose value is not zero everywhere.
  // Updates of a program whose counterpart holds the same parameters and leaves all of its own as they were.
  std::vector<MissingTap> unmoved;
  KeptLeft kept_left = KeptLeft::kAlike;
  GradientApart apart;  // Of those that the programs leave apart, the one that lies farthest, confirmed.
  // The programs do no more than add to gradients, and the target's loss and gradients are so many times the
  // reference's; or they compute the same, or that, only if the gradients that earlier steps left, which were not
  // judged, are so many times the reference's. No tap's mathematics was answered.
  std::optional<double> common_scale, supposed_scale;
  // The same of a step whose optimizers make what the reference's do of them; 1: the loss alone differs.
  std::optional<double> absorbed_scale;
  // What the target's loss is times the reference's, and all gradients until one program takes that out
  // (paired_taps.h).
  std::optional<double> loss_scale;
  // Parameters of which one program tells what was added to them and the other what they become: not compared.
  std::vector<std::string> told_otherwise;
  std::vector<std::string> skipped_taps;      // One side skipped their update, since it found an overflow.
  std::vector<std::string> shape_conflicts;   // "tap 'x': target [2, 3], reference [3, 2]"
  std::optional<Suspicion> suspicion;         // When mathematics failed.
  std::vector<NodeId> policy_casts;           // Roundings that own the difference to the reference, largest first.
  std::optional<Format> policy;               // The gap closes when leaves are taken as rounded to this format.
  std::optional<double> scale_error;          // Mathematics differs by this relative factor, to 1e-6: T = (1 + c) R.
  std::optional<ProgramAlignment> alignment;  // Of a pair in which something is not explained (pair/alignment.h).
  // Rounded replay, where it was needed: it reproduces T bitwise, or within an eighth of how far T lies
  // from M or R, whichever is more.
  std::optional<bool> explained;
  std::map<std::string, double> seconds;  // Each pass took so long.
};

}  // namespace plumbline
