#include "server/ingest/golden_step.h"

#include "server/ingest/golden_store.h"

namespace plumbline {

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
