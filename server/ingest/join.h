// The traces of all ranks of a step, joined into one trace: what each rank sent in a collective and what every rank got
// from it are tied together. No gRPC, no threads.
//
// A client whose run has several ranks writes a collective as operations of these two kinds, and the join turns them
// into operations that lowering models (lower/collective.cc):
//
//   plumbline::send.KIND(input, group, call, part, reduction, root, tag, splits) -> its content, flat, a fresh value
//   plumbline::receive.KIND(group, call, part, reduction, root, tag) -> what was written
//
// KIND is all_reduce, reduce, broadcast, all_gather, gather, scatter, reduce_scatter, all_to_all (one tensor a rank),
// or all_gather_flat, reduce_scatter_flat, all_to_all_flat (one tensor for all ranks), or point_to_point, whose group
// is a sender (the root) and a receiver. `group` holds the ranks, `tag` is that of a message and -1 otherwise, `call`
// counts the calls of a group and tag in this step from 0, `part` the tensors of one call, `root` is a rank.
//
// Names of the lowest rank stay; rank r's become "rankR/NAME". What ranks hold or compute alike is taken once: leaves
// of one name and content, operations on the same inputs with the same observed results, taps of the same content. What
// they hold in parts is put together (shards.h).
//
// Ranks of the run may be elsewhere, where other daemons join theirs. A result of a call that needs what such a rank
// sent is then what it was received as: a leaf "received:KIND#N" of role OBSERVED. What a rank sends in a call with one
// of them is judged: a tap "sent:KIND#N".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/ingest/trace.h"

namespace plumbline {

struct Joined {
  std::shared_ptr<const Trace> trace;  // Null: the ranks do not fit together.
  std::string fault;                   // Why not: names ranks, and what was found on each.
  bool contradiction = false;          // They made the same number of calls, and these differ.
  std::string source;                  // The call at fault stands there, where it is known.
};

// `ranks` holds one trace for each rank that is here, all of one step, in ascending order. The identity is that of the
// first. `ranks_of_run` counts the others too; 0: there are none.
Joined join_ranks(const std::vector<std::shared_ptr<const Trace>>& ranks, bool replicated,
                  std::int32_t ranks_of_run = 0);

}  // namespace plumbline
