#include "server/bound/pair/asked.h"

#include <cmath>
#include <span>

#include "server/bound/pair/confirm.h"
#include "server/bound/pair/standouts.h"

namespace plumbline {
namespace {

constexpr std::size_t kAskedTogether = 8;  // Functionals of single taps that one sweep holds.

// Sets the answers of the taps that were enclosed.
void set_mathematics(const std::map<std::size_t, Answer>& answers, Bounds* bounds) {
  for (Finding& finding : bounds->findings) {
    if (!finding.proven || finding.taps.size() != 1) continue;
    if (const auto found = answers.find(finding.taps[0]); found != answers.end()) finding.mathematics = found->second;
  }
}

void add_answers(const Gap& gap, const std::vector<Probe>& probes, Asked* asked) {
  std::vector<Answer> answers = gap.ask(probes);
  asked->probes.insert(asked->probes.end(), probes.begin(), probes.end());
  asked->answers.insert(asked->answers.end(), answers.begin(), answers.end());
}

}  // namespace

void add_standouts(const BoundsInput& input, const Gap& gap, const Replay* followed, Asked* asked,
                   std::uint64_t* elements) {
  const Standouts standouts = find_standouts(input, gap, asked->updates, followed);
  *elements = standouts.elements;
  std::vector<Answer> answers = gap.ask(standouts.probes);
  for (std::size_t p = 0; p < answers.size(); ++p) {
    if (answers[p].deviation <= answers[p].envelope) continue;
    asked->probes.push_back(standouts.probes[p]);
    asked->answers.push_back(answers[p]);
  }
}

void note_jumps(const BoundsInput& input, const PairReplays& replays, const Correspondence& match,
                const std::vector<PairedTap>& pairs, const std::vector<Probe>& probes, std::vector<Answer>* answers) {
  if (replays.target_jumps.empty() && replays.reference_jumps.empty()) return;
  // Grids that were taken for formats are rounded in any way.
  if (!match.target_grids.empty() || !match.reference_grids.empty()) return;
  std::vector<std::size_t> asked;
  std::vector<Probe> again;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    if (!(*answers)[p].by_freedom || !(*answers)[p].passed()) continue;
    asked.push_back(p);
    again.push_back(probes[p]);
  }
  if (again.empty()) return;
  PairReplays settled = replays;
  for (NodeId node : replays.target_jumps) settled.target_slack.freedoms.erase(node);
  for (NodeId node : replays.reference_jumps) settled.reference_slack.freedoms.erase(node);
  const std::vector<Answer> found = Gap(input, settled, pairs).ask(again);
  for (std::size_t i = 0; i < asked.size(); ++i) (*answers)[asked[i]].by_jumps = !found[i].passed();
}

Asked asked_again(const BoundsInput& input, const Gap& gap, const Correspondence& match, const Asked& before) {
  Asked asked;
  // Few correspondences explain what failed. Where one does not, what failed by most tells so in the shortest time.
  if (const std::optional<std::size_t> worst = worst_of(before)) {
    add_answers(gap, {before.probes[*worst]}, &asked);
    if (asked.failed()) confirm(input, gap, asked.probes, &asked.answers);
    if (asked.failed()) return asked;
    asked = {};
  }
  add_answers(gap, before.probes, &asked);
  asked.planned = before.planned;
  if (!before.updates.empty()) {
    const PairReplays& replays = gap.replays();
    asked.updates = updates_of(gap.pairs(), {*input.target, replays.target, replays.target_leaves},
                               {*input.reference, replays.reference, replays.reference_leaves},
                               [&](std::size_t tap) { return before.updates.count(tap) != 0; });
    // What its radii, which count no freedom, say nothing of any more or refuse is asked as a functional.
    const bool free =
        replays.shared_items.has_value() || !replays.target_slack.empty() || !replays.reference_slack.empty();
    std::vector<std::pair<double, std::size_t>> left;
    for (const auto& [tap, answer] : before.updates) {
      const auto found = asked.updates.find(tap);
      if (found != asked.updates.end() && !(free && found->second.failed())) continue;
      const double margin = answer.margin();
      left.emplace_back(margin <= HUGE_VAL ? -margin : -HUGE_VAL, tap);  // NaN has no place in an order.
      asked.updates.erase(tap);
    }
    std::ranges::sort(left);  // A few at a time, the worst first, whose failure is enough.
    for (std::size_t i = 0; i < left.size() && !asked.failed(); i += kAskedTogether) {
      std::vector<Probe> probes;
      for (const auto& [margin, tap] : std::span(left).subspan(i, std::min(kAskedTogether, left.size() - i)))
        probes.push_back(gap.probe(*gap.find(tap)));
      add_answers(gap, probes, &asked);
    }
  }
  std::uint64_t elements = 0;
  add_standouts(input, gap, nullptr, &asked, &elements);
  note_jumps(input, gap.replays(), match, gap.pairs(), asked.probes, &asked.answers);
  confirm(input, gap, asked.probes, &asked.answers);
  return asked;
}

void confirm_updates(const BoundsInput& input, const Gap& gap, Asked* asked) {
  const auto sure = [](const Answer& answer) { return answer.failed() && answer.confirmed; };
  if (std::ranges::any_of(asked->answers, sure)) return;
  std::pair<const std::size_t, Answer>* worst = nullptr;
  for (auto& update : asked->updates)
    if (update.second.failed() && (worst == nullptr || !(update.second.margin() <= worst->second.margin())))
      worst = &update;
  if (worst == nullptr) return;
  const std::vector<Probe> probe{gap.probe(*gap.find(worst->first))};
  std::vector<Answer> answer = gap.ask(probe);
  confirm(input, gap, probe, &answer);
  worst->second.confirmed = sure(answer.front());
}

Finding& finding_named(const Probe& probe, Bounds* bounds) {
  for (Finding& finding : bounds->findings)
    if (finding.name == probe.name) return finding;
  Finding& finding = bounds->findings.emplace_back();
  finding.name = probe.name;
  for (const Probe::Part& part : probe.parts) {
    finding.taps.push_back(part.tap);
    finding.elements += static_cast<std::uint64_t>(part.elements);
  }
  return finding;
}

void set_answers(const Asked& asked, Bounds* bounds) {
  for (std::size_t p = 0; p < asked.probes.size(); ++p)
    if (p < asked.planned || !asked.answers[p].passed())
      finding_named(asked.probes[p], bounds).mathematics = asked.answers[p];
  set_mathematics(asked.updates, bounds);
}

std::optional<std::size_t> worst_of(const Asked& asked) {
  std::optional<std::size_t> worst;
  for (std::size_t p = 0; p < asked.answers.size(); ++p)
    if (asked.answers[p].failed() && (!worst || !(asked.answers[p].margin() <= asked.answers[*worst].margin())))
      worst = p;
  return worst;
}

}  // namespace plumbline
