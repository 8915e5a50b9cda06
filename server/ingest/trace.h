// One step as it came over the wire, validated: every id is known, every payload complete, every window in its value.
// Plain data, no protobuf. The fields mean what proto/plumbline/v1/trace.proto says.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/array.h"
#include "kernels/ball/format.h"

namespace plumbline {

using ValueId = std::uint64_t;    // The id of a storage value; 0 means that it is absent.
using PayloadId = std::uint64_t;  // 0: absent.
using Bytes = std::shared_ptr<const std::vector<std::uint8_t>>;

struct TensorRef {
  ValueId value = 0;
  Format format = Format::kUnknown;
  View view;
};

// A name without the "rankR/" that tells whose it is, in a trace of several ranks.
std::string_view unranked(std::string_view name);

enum class LeafRole : std::uint8_t {
  kUnknown = 0,
  kData = 1,
  kParameter = 2,
  kBuffer = 3,
  kState = 4,
  kRandom = 5,
  kObserved = 6,
  kUnwritten = 7
};

// Matched by its name.
inline bool named(LeafRole role) { return role != LeafRole::kData && role != LeafRole::kUnwritten; }

// Carried from step to step under a name.
inline bool persistent(LeafRole role) {
  return role == LeafRole::kParameter || role == LeafRole::kBuffer || role == LeafRole::kState;
}

// A box of a tensor that ranks hold in parts.
struct TracePart {
  Shape whole, start;
  View view;  // The box: of a leaf, a window on its value; of a tap, of its terms' sizes.
};

struct TraceLeaf {
  ValueId value = 0;
  Format format = Format::kUnknown;
  std::int64_t count = 0;
  LeafRole role = LeafRole::kData;
  std::string name;
  PayloadId payload = 0;
  std::optional<TracePart> part = std::nullopt;  // Never in a joined trace.
};

// Whether a leaf is a gradient that the step before left where backward adds to it ("state:NAME.grad").
inline bool carried_gradient(LeafRole role, std::string_view name) {
  return role == LeafRole::kState && unranked(name).starts_with("state:") && name.ends_with(".grad");
}

struct ScalarEdge {
  TensorRef source;  // One element.
};

struct None {};

using ArgumentValue =
    std::variant<None, TensorRef, std::vector<TensorRef>, double, std::int64_t, bool, std::string,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<bool>, Format, ScalarEdge>;

struct TraceArgument {
  std::string name;
  ArgumentValue value;
};

struct TraceResult {
  TensorRef tensor;  // value 0: None.
  std::int64_t count = 0;
  ValueId base = 0;
  std::string argument;
  PayloadId observed = 0;
};

// How a convolution adds up (trace.proto).
enum class Summation : std::uint8_t { kUnknown = 0, kWhole = 1, kInParts = 2 };

enum class Phase : std::uint8_t { kUnknown = 0, kForward = 1, kBackward = 2, kOptimizer = 3 };

struct TraceOp {
  std::string name;
  std::vector<TraceArgument> arguments;
  std::vector<TraceResult> results;
  Phase phase = Phase::kUnknown;
  std::string source;
  std::string module;
  PayloadId decision = 0;
  std::string region;
  std::string defined;
  Summation summation = Summation::kUnknown;
};

enum class TapKind : std::uint8_t {
  kUnknown = 0,
  kLoss = 1,
  kGradient = 2,
  kUpdate = 3,
  kState = 4,
  kValue = 5,
  kCarried = 6
};
// What a step leaves behind: parameters, buffers, an optimizer's state.
constexpr bool outlives_step(TapKind kind) { return kind == TapKind::kUpdate || kind == TapKind::kState; }

// The user's word that every element of a tap lies in [minimum, maximum].
struct Guard {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool given() const { return std::isfinite(minimum) || std::isfinite(maximum); }
};

struct TraceTap {
  struct Term {
    TensorRef tensor;
    double weight = 1;
    PayloadId observed = 0;  // 0: the tensor is a window on a leaf.
  };
  std::string name;
  TapKind kind = TapKind::kValue;
  std::vector<Term> terms;
  PayloadId reference = 0;
  Format reference_format = Format::kUnknown;
  double scale = 0;
  Guard guard;
  std::optional<TracePart> part = std::nullopt;
};

struct StepIdentity {
  std::string project, job, run;
  std::int32_t rank = 0;
  std::int64_t step = 0;

  std::string id() const;      // "project/job/run/rank/step"
  std::string run_id() const;  // "project/job/run/rank"
  auto operator<=>(const StepIdentity&) const = default;
};

// What the trace holds of the watched models.
struct TraceScope {
  bool partial = false;
  std::vector<std::string> modules, left_out;  // Paths; of partial steps.
  std::uint64_t modules_total = 0, parameters_total = 0;
};

struct Trace {
  StepIdentity identity;
  TraceScope scope;
  bool outputs = false;
  std::int64_t missed = 0;
  std::vector<std::string> missed_reasons;
  std::vector<TraceLeaf> leaves;
  std::vector<TraceOp> ops;  // In execution order: an op's inputs are leaves or results of earlier ops.
  std::vector<TraceTap> taps;
  std::map<PayloadId, Bytes> payloads;
  std::string digest;  // 32 hexadecimal digits over all frames.
  // The digests of the traces of several ranks that were joined into one (join.h). They are empty where there is one
  // rank alone.
  std::vector<std::string> rank_digests;
  bool replicated = false;  // All ranks hold the same parameters.

  std::uint64_t payload_bytes() const;
};

struct GoldenStep;

// How two programs left what they keep under no name and found alike (pair/kept.h): alike; in a way that tells nothing,
// as where one of them did not write it; otherwise, of what both found the same.
enum class KeptLeft : std::uint8_t { kAlike = 0, kUntold = 1, kApart = 2 };

// A gradient that a step leaves where the next backward adds to it, which its reference's step leaves otherwise.
struct GradientApart {
  std::string leaf;  // That the next step has of it, "state:NAME.grad"; empty: there is none.
  double by = 0;     // Norm of the difference over the reference's, in exact arithmetic.
  double scale = 1;  // The contents of all that it leaves are so many times the reference's; 0: not known.
  KeptLeft kept = KeptLeft::kAlike;
  bool operator==(const GradientApart&) const = default;
};

// What an audit is asked: a step, and what it is judged against beside its own exact replay.
struct TraceRecord {
  std::shared_ptr<const Trace> trace;
  std::shared_ptr<const Trace> reference;    // Null: none. Its leaves that are matched by name may lack their payloads.
  std::shared_ptr<const GoldenStep> golden;  // In place of a reference. Null: none.
  std::string reference_name;                // "run NAME step K", "golden NAME step K".
  std::string profile;
  double alpha = 0;
  // What an earlier step of the run left: digests by name, for the invariants.
  std::int64_t previous_step = -1;  // -1: none.
  std::map<std::string, std::string> previous_digests;
  // What that step left alone, to be compared with what this step leaves alone.
  std::map<std::string, std::string> previous_untouched;
  // Names of the updates that its reference's step gave.
  std::set<std::string> previous_reference_updates;
  GradientApart previous_apart;
};

}  // namespace plumbline
