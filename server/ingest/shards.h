// Tensors that the ranks of a run hold in parts: boxes of a whole, as DTensor's shards are, along any dimensions,
// uneven ones and replicas too. Where the parts make up the whole, the joined trace has that, under the tensor's own
// name:
//
//   a leaf of the whole, and for each rank    plumbline::part(input) -> what it holds: a box, zeros beside it
//   for each term of a tap                    plumbline::whole(parts, offsets) -> the ranks' parts put together
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/ingest/trace.h"

namespace plumbline {

// Bytes that putting the parts together makes, beside the traces themselves. A part's strides may be 0: they may be
// many times what was received.
std::uint64_t bytes_of_wholes(const std::vector<std::shared_ptr<const Trace>>& ranks);

// The ranks' traces with leaves of the whole in place of their parts. A rank that left its part of a parameter, or of
// its state, as it was, where another updated its own, gets a tap that says so.
std::vector<std::shared_ptr<const Trace>> with_whole_leaves(std::vector<std::shared_ptr<const Trace>> ranks);

// Puts one tap of a joined trace in place of the ranks' parts of it. Parts that make up no whole are named by what they
// are, such as "grad:w[0:4, 0:8]", since what they are parts of has another shape.
void make_taps_whole(Trace* joined);

}  // namespace plumbline
