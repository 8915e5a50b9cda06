// The matched gap of two programs' replays at their taps, and what it may be without any difference of mathematics: the
// replays' own errors, and the freedoms of what has no counterpart.
#pragma once

#include "server/bound/input.h"
#include "server/bound/match/handed.h"
#include "server/bound/match/paired_taps.h"
#include "server/bound/replay/wide_replay.h"

namespace plumbline {

// What both programs hold is taken for roundings, or for no more than half known (half_known.h): of those items that
// the programs use otherwise, by this share (shared_items.h).
struct SharedItems {
  double share = 0;
  bool half_known = false;
};

// Both programs on one copy of all that they share.
struct PairReplays {
  std::vector<NodeId> target_jumps, reference_jumps;  // Nodes whose freedom is that of open decisions, not of kinks.

  Replay target, reference;
  std::vector<LeafValue> target_leaves, reference_leaves;
  Slack target_slack, reference_slack;
  std::vector<bool> target_shared, reference_shared;  // Decisions of each graph that the other program takes too.
  HandedBack target_handed, reference_handed;         // By Python; what of it is near is in the slacks.
  // The replays differ by these from those of the leaves alone.
  Overrides target_overrides, reference_overrides;
  bool one_program = false;                 // Both replays are one.
  std::optional<SharedItems> shared_items;  // Empty: both hold the same.
};

class Gap {
 public:
  // Refers to `input` and `replays`. `pairs` in the target's order. `finite`: by tap of the target, what is known to
  // be.
  Gap(const BoundsInput& input, const PairReplays& replays, std::vector<PairedTap> pairs,
      const std::map<std::size_t, Answer>& finite = {});

  const std::vector<PairedTap>& pairs() const { return pairs_; }
  const PairReplays& replays() const { return replays_; }
  // Whether the target's side is what was executed: nothing of it stands for something of the reference, or is free.
  bool as_executed() const { return replays_.target_slack.empty() && replays_.target_overrides.empty(); }
  const PairedTap* find(std::size_t target_tap) const;  // Null: it has no counterpart.

  // M_T(z), M_R(z); 0 where either is not finite.
  Array of_target(const PairedTap& pair) const;
  Array of_reference(const PairedTap& pair) const;
  // Whether both have the same infinities and NaNs, other ones, or some that say nothing of the mathematics.
  enum class Parting : std::uint8_t { kNone, kOther, kUnknown };
  Parting parting(const PairedTap& pair) const;
  // Where infinities and NaNs are: 0 of those elements, 1 of the others; empty: none.
  Array mask(const PairedTap& pair) const;

  // Norm of the difference over the reference's norm.
  double relative(const PairedTap& pair) const;

  // What the probe's deviations are relative to: its scale, or the size of the terms that cancel where the replays'
  // error exceeds what is left of them.
  double scale(const Probe& probe) const;

  // Random signs over the tap alone, its number if it holds but one.
  Probe probe(const PairedTap& pair) const;

  // Errors and freedoms of the target's side alone.
  std::vector<Envelope> own_envelopes(const std::vector<Probe>& probes) const;
  // `own`: as above, by probe. All taps of a probe have their counterparts.
  //
  // Programs agree if |M_T - M_R| <= rho_T + rho_R, and so where it is within rho_T alone: the reference's error is
  // not looked for there, which takes a sweep of its replay. In the answer's envelope it is then taken to be what the
  // target's is, as it is found of one program twice.
  std::vector<Answer> ask(const std::vector<Probe>& probes, const std::vector<Envelope>& own) const;
  std::vector<Answer> ask(const std::vector<Probe>& probes) const;

  // Whether the target's error alone, of one probe among any, tells that the programs agree.
  bool agree(const Probe& probe, const Envelope& own) const;

  // The same probe of the reference's taps.
  Probe reindexed(const Probe& probe) const;

  // What wide replays of the two sides computed (confirm.h).
  struct Wide {
    WideValues target, reference;
  };
  Wide& wide() const { return wide_; }

 private:
  struct Pattern {
    Array mask;
    bool same = true;
    bool known = true;
  };
  double gap(const Probe& probe) const;  // |<x, M_T - M_R>|
  std::vector<Envelope> their_envelopes(const std::vector<Probe>& probes) const;
  // Whether the target's error alone tells that the programs agree, and that its size says something.
  bool within_own(const Probe& probe, double gap, const Envelope& own, double lambda) const;
  // Whether what was executed may be what is left of terms of this size that cancel, or is nothing at all. If it is far
  // less, the replays' error comes of something else, and nothing is known of the value.
  bool is_left_of(double terms, const Probe& probe) const;

  const BoundsInput& input_;
  const PairReplays& replays_;
  std::vector<PairedTap> pairs_;
  mutable Wide wide_;
  mutable std::map<std::string, double> scales_;  // A probe's scale by its name, where it is not the probe's own.
  // There is one for each tap of the target where something is not finite.
  std::map<std::size_t, Pattern> patterns_;
};

}  // namespace plumbline
