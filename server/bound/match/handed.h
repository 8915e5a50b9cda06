// Data that Python may have computed out of sight: it had read numbers of the step (`x.numpy()`, `x.tolist()`,
// float(x)) before it gave the data to an operation, as many as the data may have been made of, and the other program
// holds nothing of that content.
//
// What numpy makes of its own roundings, in its own order, is no item that both programs were fed: where it cancels, it
// differs from what torch computes by any number of last places. Near what the other program computes, or was handed
// itself, it is taken for that: known as far as what was read is (python_numbers.h), and beyond that nothing is
// decided. Far from everything it may be another formula or another program's roundings: what hangs on it accuses, and
// proves nothing. Of what Python called after it had read a tie (two numbers, or one and a half integer, that lie
// within the errors of what was read, so that a branch, an argmax or a rounding in Python may go either way; or a whole
// number, or a count that the trace tells by a shape, that the replay makes another, as a choice before it came out
// otherwise) nothing is decided.
#pragma once

#include <optional>
#include <vector>

#include "server/bound/match/computed.h"
#include "server/bound/replay/python_numbers.h"

namespace plumbline {

struct HandedBack {
  Freedoms near;                // How far such data is known.
  std::vector<NodeId> unknown;  // Other such data.
  std::vector<NodeId> after_a_tie;
  std::optional<UncertainNumber> tie;  // The first; of one side's, `in_reference` is not set.
};

// `computed`: the data of `own` that was matched with what `other` computes.
HandedBack handed_back(const MatchSide& own, const MatchSide& other, const Overrides& computed);

}  // namespace plumbline
