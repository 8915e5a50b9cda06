// T and M of the taps that can be compared, and what probes read of them.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "server/bound/envelope/probe.h"
#include "server/bound/replay/replay.h"
#include "server/bound/replay/tapped.h"
#include "server/bound/replay/taps.h"

namespace plumbline {

// Taps that are finite all over, or infinite where exact arithmetic is; values are made when they are asked for. Refers
// to the graph and the replay.
class TapValues {
 public:
  TapValues(const Graph& graph, const Replay& replay, const std::vector<FiniteTap>& finite);

  // Nothing of these products is computed until drop_factors(): a sweep reads what probes say of them (Envelope::read).
  // Their taps are measured by `beside`, which has their values, or where it is empty by what was observed.
  void read_by_factors(TappedProducts products, Replay beside);

  const Graph& graph() const { return graph_; }
  const Replay& replay() const { return replay_; }
  const std::vector<std::size_t>& taps() const { return taps_; }
  // Finite in exact arithmetic alone: mathematics can be compared, execution cannot.
  const std::set<std::size_t>& overflown() const { return overflown_; }
  const TappedProducts& by_factors() const { return by_factors_; }
  bool unread(std::size_t tap) const;  // It is the tap of one of these.
  void drop_factors() { by_factors_.clear(); }

  ProbeTap probed(std::size_t tap) const;
  Array observed(std::size_t tap) const;
  Array exact(std::size_t tap) const;

 private:
  const Graph& graph_;
  const Replay& replay_;
  std::vector<std::size_t> taps_;
  std::map<std::size_t, Array> masks_;  // A tap that is infinite where exact arithmetic is has one.
  std::set<std::size_t> overflown_;
  TappedProducts by_factors_;
  Replay beside_;
};

// What a probe reads of the taps.
struct Measured {
  double deviation = 0;             // <x, T - M>; where a sweep reads part of M, still to be taken off.
  double computed = 0;              // The same of the parts whose M is computed.
  double centre = 0, observed = 0;  // <x, M>, <x, T> of one element.
};
Measured measure(const Probe& probe, const TapValues& values);

}  // namespace plumbline
