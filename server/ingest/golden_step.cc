#include "server/ingest/golden_step.h"

#include <map>

#include "server/ingest/arguments.h"
#include "server/ingest/golden_store.h"
#include "server/ingest/limits.h"
#include "server/ingest/tensor_rules.h"

namespace plumbline {
namespace {

using absl::StrCat;
using TapsByName = std::map<std::string, const GoldenStep::Tap*>;

Violation check_leaf(const GoldenStep::Leaf& leaf, const std::string& field) {
  Format format = Format::kUnknown;
  if (auto wrong = read_format(static_cast<int>(leaf.format), field + ".dtype", &format)) return wrong;
  if (!v1::Leaf::Role_IsValid(static_cast<int>(leaf.role))) {
    return invalid(field + ".role", "a role of leaves", static_cast<int>(leaf.role));
  }
  if (leaf.count < 0 || leaf.count > limits::kElementsMax) {
    return invalid(field + ".count", StrCat("0 to ", limits::kElementsMax), leaf.count);
  }
  return check_text(leaf.name, field + ".name", false);
}

Violation check_tap(const GoldenStep::Tap& tap, const std::string& field, TapsByName* taps) {
  if (auto wrong = check_text(tap.name, field + ".name", true)) return wrong;
  if (!taps->emplace(tap.name, &tap).second) return invalid(field + ".name", "a name unique in the step", tap.name);
  if (!v1::Tap::Kind_IsValid(static_cast<int>(tap.kind))) {
    return invalid(field + ".kind", "a kind of taps", static_cast<int>(tap.kind));
  }
  if (tap.shape.size() > limits::kDimensionsMax) {
    return invalid(field + ".sizes", StrCat("at most ", limits::kDimensionsMax), tap.shape.size());
  }
  std::int64_t elements = 0;
  if (auto wrong = count_elements(tap.shape, field, INT64_MAX, &elements)) return wrong;
  for (const auto* values : {&tap.exact, &tap.observed}) {
    if (!values->empty() && values->size() != static_cast<std::size_t>(elements)) {
      return invalid(field + (values == &tap.exact ? ".exact" : ".observed"), StrCat("none or all ", elements),
                     values->size());
    }
  }
  if (tap.magnitude < 0) return invalid(field + ".magnitude", "a norm", tap.magnitude);
  return {};
}

Violation check_probe(const GoldenStep::Probe& probe, const std::string& field, const TapsByName& taps) {
  if (auto wrong = check_text(probe.name, field + ".name", true)) return wrong;
  if (probe.taps.empty() || (probe.scalar && probe.taps.size() != 1)) {
    return invalid(field + ".taps", probe.scalar ? "one" : "one or more", probe.taps.size());
  }
  for (const std::string& name : probe.taps) {
    const auto tap = taps.find(name);
    if (tap == taps.end()) return invalid(field + ".taps", "taps of the step", StrCat("\"", name, "\""));
    const std::int64_t elements = count(tap->second->shape);
    if (elements == 0 || (probe.scalar && elements != 1)) {
      return invalid(field + ".taps", probe.scalar ? "a tap of one element" : "taps with elements",
                     StrCat("\"", name, "\" of ", elements));
    }
  }
  for (const double error : {probe.rho, probe.noise_bias, probe.noise_squares, probe.python}) {
    if (error < 0) return invalid(field, "errors of 0 or more", error);
  }
  return {};
}

}  // namespace

Violation check_golden_step(const GoldenStep& step) {
  if (step.rank < 0) return invalid("golden.rank", "0 or more", step.rank);
  if (step.step < 0 || step.step > limits::kStepMax) {
    return invalid("golden.step", StrCat("0 to ", limits::kStepMax), step.step);
  }
  for (std::size_t i = 0; i < step.leaves.size(); ++i) {
    if (auto wrong = check_leaf(step.leaves[i], StrCat("golden.leaves[", i, "]"))) return wrong;
  }
  TapsByName taps;
  for (std::size_t i = 0; i < step.taps.size(); ++i) {
    if (auto wrong = check_tap(step.taps[i], StrCat("golden.taps[", i, "]"), &taps)) return wrong;
  }
  for (std::size_t i = 0; i < step.probes.size(); ++i) {
    if (auto wrong = check_probe(step.probes[i], StrCat("golden.probes[", i, "]"), taps)) return wrong;
  }
  return {};
}

v1::GoldenStep to_proto(const GoldenStep& step) {
  v1::GoldenStep wire;
  wire.set_rank(step.rank);
  wire.set_step(step.step);
  wire.set_digest(step.digest);
  wire.set_seed(step.seed);
  wire.set_opaque(step.opaque);
  wire.set_on_grid(step.on_grid);
  wire.set_overflow(step.overflow);
  for (const GoldenStep::Leaf& leaf : step.leaves) {
    auto* to = wire.add_leaves();
    to->set_role(static_cast<v1::Leaf::Role>(leaf.role));
    to->set_name(leaf.name);
    to->set_dtype(static_cast<v1::DType>(leaf.format));
    to->set_count(leaf.count);
    to->set_digest(leaf.digest);
  }
  for (const GoldenStep::Tap& tap : step.taps) {
    auto* to = wire.add_taps();
    to->set_name(tap.name);
    to->set_kind(static_cast<v1::Tap::Kind>(tap.kind));
    to->mutable_sizes()->Assign(tap.shape.begin(), tap.shape.end());
    to->set_magnitude(tap.magnitude);
    to->set_projection(tap.projection);
    to->mutable_exact()->Assign(tap.exact.begin(), tap.exact.end());
    to->mutable_observed()->Assign(tap.observed.begin(), tap.observed.end());
    to->set_observed_digest(tap.observed_digest);
  }
  for (const GoldenStep::Probe& probe : step.probes) {
    auto* to = wire.add_probes();
    to->set_name(probe.name);
    for (const std::string& tap : probe.taps) to->add_taps(tap);
    to->set_scalar(probe.scalar);
    to->set_rho(probe.rho);
    to->set_noise_bias(probe.noise_bias);
    to->set_noise_squares(probe.noise_squares);
    to->set_host(probe.python);
  }
  return wire;
}

GoldenStep from_proto(const v1::GoldenStep& wire) {
  GoldenStep step;
  step.rank = wire.rank();
  step.step = wire.step();
  step.digest = wire.digest();
  step.seed = wire.seed();
  step.opaque = wire.opaque();
  step.on_grid = wire.on_grid();
  step.overflow = wire.overflow();
  for (const auto& leaf : wire.leaves()) {
    step.leaves.push_back({static_cast<LeafRole>(leaf.role()), leaf.name(), static_cast<Format>(leaf.dtype()),
                           leaf.count(), leaf.digest()});
  }
  for (const auto& tap : wire.taps()) {
    step.taps.push_back({tap.name(),
                         static_cast<TapKind>(tap.kind()),
                         Shape(tap.sizes().begin(), tap.sizes().end()),
                         tap.magnitude(),
                         tap.projection(),
                         {tap.exact().begin(), tap.exact().end()},
                         {tap.observed().begin(), tap.observed().end()},
                         tap.observed_digest()});
  }
  for (const auto& probe : wire.probes()) {
    step.probes.push_back({probe.name(),
                           {probe.taps().begin(), probe.taps().end()},
                           probe.scalar(),
                           probe.rho(),
                           probe.noise_bias(),
                           probe.noise_squares(),
                           probe.host()});
  }
  return step;
}

}  // namespace plumbline
