#include "server/work/ranks_here.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/ingest/limits.h"
#include "server/nodes/part.h"
#include "server/store/encode.h"

namespace plumbline {

using absl::StrCat;

Violation check_ranks_here(const std::vector<std::int32_t>& given, std::int32_t ranks, std::int32_t own,
                           std::vector<std::int32_t>* here) {
  if (given.empty()) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    *here = std::move(all);
    return {};
  }
  if (given.size() > limits::kRanksJoinedMax) {
    return invalid("ranks_here", StrCat("at most ", limits::kRanksJoinedMax, " ranks"), StrCat(given.size()));
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0 || given[i] >= ranks) {
      return invalid("ranks_here", StrCat("0 to ", ranks - 1, ", since the run has ", ranks, " ranks"), given[i]);
    }
    if (i > 0 && given[i] <= given[i - 1]) {
      return invalid("ranks_here", "ascending ranks, each once", StrCat(given[i], " after ", given[i - 1]));
    }
  }
  if (!std::binary_search(given.begin(), given.end(), own)) {
    return invalid("ranks_here", StrCat("rank ", own, " among them, which opens the run here"), ranks_text(given));
  }
  *here = given;
  return {};
}

std::string ranks_text(const std::vector<std::int32_t>& ranks) {
  if (ranks.size() == 1) return StrCat("rank ", ranks.front());
  const bool run = ranks.size() > 2 && ranks.back() - ranks.front() + 1 == static_cast<std::int32_t>(ranks.size());
  return StrCat("ranks ", run ? StrCat(ranks.front(), " to ", ranks.back()) : absl::StrJoin(ranks, ", "));
}

void tell_ranks_here(const std::vector<std::int32_t>& here, std::int32_t ranks, bool judged_as_a_whole,
                     Verdict* verdict) {
  verdict->notes.push_back(StrCat(
      "of ", ranks_text(here), " of ", ranks,
      " alone: the others stream to other daemons; what came from them was taken as it was received, and whether it is "
      "what they sent, and whether parameters and buffers equal theirs, was not compared",
      judged_as_a_whole ? " here: the verdict of all ranks, of rank -1 in the shared history, is of that too" : ""));
  if (verdict->outcome != Outcome::kTypeI) return;
  if (verdict->grade == Grade::kProven) verdict->grade = Grade::kFirstOrder;
  absl::StrAppend(&verdict->sentence, " This holds for ", ranks_text(here), " of ", ranks,
                  ", with what came from the others taken as it was received.");
}

NodePartRow node_part_row(const Run& run, const Verdict& verdict, v1::NodePart* part) {
  set_verdict(to_proto(verdict), part);
  return {verdict.identity, run.here, run.ranks, verdict.digest, part->SerializeAsString()};
}

}  // namespace plumbline
