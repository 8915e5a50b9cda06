// The judgement of one step, as plain data. Fields mean what proto/plumbline/v1/verdict.proto says.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "server/ingest/trace.h"
#include "server/lower/wanted.h"

namespace plumbline {

enum class Outcome : std::uint8_t { kUnspecified = 0, kTypeI = 1, kTypeII = 2, kInconclusive = 3 };
enum class Grade : std::uint8_t {
  kUnspecified = 0,
  kMatch = 1,
  kProven = 2,
  kExplained = 3,
  kFirstOrder = 4,
  kStatistical = 5
};
enum class Cause : std::uint8_t {
  kUnspecified = 0,
  kRounding = 1,
  kPrecisionPolicy = 2,
  kRange = 3,
  kLeafMismatch = 4,
  kExecution = 5,
  kMathematics = 6,
  kReferenceAtFault = 7,
  kInvariant = 8,
  kReferenceMissing = 9,
  kUnanswered = 10,
  kStructure = 11
};

inline constexpr double kNotAsked = std::numeric_limits<double>::quiet_NaN();

struct Place {
  std::string op, source, module, format;
  std::int64_t operation = -1;  // Its index in the trace; -1: a leaf.
};

struct Contributor {
  Place place;
  double share = 0;
  std::uint64_t count = 0;
};

struct TapVerdict {
  std::string name;
  Outcome outcome = Outcome::kUnspecified;
  Grade grade = Grade::kUnspecified;
  std::uint64_t elements = 0;
  double low = kNotAsked, high = kNotAsked, observed = kNotAsked;
  std::uint64_t worst_element = 0;
  double reference = kNotAsked;
  double surprise = kNotAsked;
  double deviation = kNotAsked, envelope = kNotAsked, margin = kNotAsked;
  double math_resolution = kNotAsked, exec_resolution = kNotAsked;
  double explained = kNotAsked;
  double interval_radius = kNotAsked;
  double drift = kNotAsked;
  double worst_case = kNotAsked;
};

struct Coverage {
  std::uint64_t operations = 0, audited = 0, opaque = 0;
  std::vector<std::string> opaque_names;
  std::uint64_t decisions = 0, unstable = 0, elements = 0, compared = 0;
  double work = 0, work_audited = 0;  // On the way to the taps: see covered_work.

  struct Module {
    std::string path;
    std::uint64_t operations = 0, parameters = 0;
  };
  bool partial = false;
  std::uint64_t modules = 0, modules_audited = 0, parameters = 0, parameters_audited = 0;
  std::vector<Module> audited_modules;
  std::vector<std::string> left_out;
};

struct Hazard {
  std::string kind;
  Place place;
  double share = 0;
  std::string remedy;
  std::string sentence;
};

struct AlignedOperation {
  std::optional<Place> target, reference;
  double deviation = kNotAsked, allowed = kNotAsked;
  std::uint64_t elements = 0, element = 0;
  double target_value = kNotAsked, reference_value = kNotAsked;
  bool elsewhere = false;
  double drift = kNotAsked;
};

struct Alignment {
  std::vector<AlignedOperation> operations;
  std::uint64_t before = 0, after = 0;
  std::optional<std::size_t> parts;
  std::uint64_t agree = 0, differ = 0, target_alone = 0, reference_alone = 0;
};

// What the steps that follow are to be captured with.
enum class WantedOutputs : std::uint8_t {
  kNone,
  kNext,   // Those of the next step: an execution looks illegal, and they would confirm or clear it.
  kAlways  // Those of all sampled steps, every one of them: what this step observed leaves elements open.
};

struct Verdict {
  StepIdentity identity;
  std::int64_t time_unix_us = 0;  // Set by the daemon when the verdict is stored.
  Outcome outcome = Outcome::kUnspecified;
  Grade grade = Grade::kUnspecified;
  Cause cause = Cause::kUnspecified;
  std::string sentence;
  double surprise = kNotAsked;
  double deviation = kNotAsked, envelope = kNotAsked, margin = kNotAsked;
  double math_resolution = kNotAsked, exec_resolution = kNotAsked, explained = kNotAsked;
  std::string deciding_tap;
  std::optional<Place> suspect;
  bool suspect_in_reference = false;  // It is an operation of the reference's trace.
  std::string suspect_detail;
  std::vector<std::string> advice;
  std::vector<Contributor> contributors;
  std::vector<TapVerdict> taps;
  Coverage coverage;
  std::vector<Hazard> hazards;
  std::optional<Alignment> alignment;
  std::string reference;
  std::string profile;
  std::vector<std::string> notes;
  double audit_seconds = 0;
  std::map<std::string, double> phase_seconds;  // lower, replay, adjoint, judge: for metrics only.
  std::string digest;
  std::string backend;
  bool trace_kept = false;
  WantedOutputs outputs = WantedOutputs::kNone;
  std::vector<WantedResult> wanted;  // Results that the audit lacked, of this step's own trace.
  // They are those of the ranks whose traces were audited as one, and empty where there is one alone.
  std::vector<std::string> rank_digests;
};

}  // namespace plumbline
