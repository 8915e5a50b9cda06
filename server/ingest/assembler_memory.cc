// What an open step takes of the memory budget: its content, and the message at hand before that is known.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ingest/assembler.h"
#include "server/ingest/beyond_share.h"

namespace plumbline {

using absl::StrCat;

TraceAssembler::Result TraceAssembler::charge(std::uint64_t bytes) {
  if (bytes > options_.step_bytes_max - std::min(options_.step_bytes_max, bytes_)) {
    return fail(exhausted("step", StrCat("the step takes more than the ", options_.step_bytes_max,
                                         " bytes that --memory-limit leaves for one step")));
  }
  switch (memory_.take(bytes)) {
    case MemoryBudget::Answer::kGranted:
      bytes_ += bytes;
      return {};
    case MemoryBudget::Answer::kWait:
      return {Progress::kWait, {}};
    case MemoryBudget::Answer::kBeyondShare:
      return fail(beyond_share(memory_.beyond(), bytes_ + bytes));
    case MemoryBudget::Answer::kDeadlock:
      break;
  }
  Violation full = exhausted("step", StrCat("all open steps together take more than the ", options_.budget->limit(),
                                            " bytes that --memory-limit leaves for them"));
  full.of_the_moment = true;
  return fail(std::move(full));
}

TraceAssembler::Result TraceAssembler::arrive(std::uint64_t bytes) {
  if (failed_ && open_) return {};  // It is skimmed, and holds nothing.
  switch (memory_.take(bytes)) {
    case MemoryBudget::Answer::kGranted:
      arrived_ += bytes;
      return {};
    case MemoryBudget::Answer::kWait:
      return {Progress::kWait, {}};
    case MemoryBudget::Answer::kBeyondShare: {
      Violation beyond = beyond_share(memory_.beyond(), bytes_ + bytes);
      return open_ ? fail(std::move(beyond)) : Result{Progress::kStepFailed, std::move(beyond)};
    }
    case MemoryBudget::Answer::kDeadlock:
      break;
  }
  Violation full = exhausted("", StrCat("all open steps together take more than the ", options_.budget->limit(),
                                        " bytes that --memory-limit leaves for them"));
  full.of_the_moment = true;
  return open_ ? fail(std::move(full)) : Result{Progress::kStepFailed, std::move(full)};
}

void TraceAssembler::settle() {
  if (arrived_ > 0) memory_.give_back(arrived_);
  arrived_ = 0;
}

}  // namespace plumbline
