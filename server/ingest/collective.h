// Which parts of what the ranks of a group sent make up what one of them got.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/ingest/trace.h"

namespace plumbline {

// A rank's share in a call, as its client wrote it (join.h).
struct CollectiveCall {
  bool send = false;
  std::string kind;  // "all_reduce", ...
  std::vector<std::int64_t> group;
  std::int64_t tag = -1;    // Messages from one rank to another have it; a collective has -1.
  std::int64_t number = 0;  // Among the calls of one group and tag.
  int part = 0;
  std::string reduction;             // "sum", ...; empty: none.
  std::int64_t root = -1;            // Rank; -1: none.
  std::vector<std::int64_t> splits;  // Elements for each rank of the group; empty: equal shares.
};

// Nothing if the operation is no such share, or is not written as one.
std::optional<CollectiveCall> collective_call(const TraceOp& op);

std::string described(const CollectiveCall& call);  // "all_reduce (sum)", "message from rank 0, tag 3".

// Whether all ranks must send the same number of elements, of one type.
bool sends_alike(const std::string& kind);

// Whether what a rank sends is one tensor of which each rank gets a share.
bool sends_shares(const std::string& kind);

struct SentTensors {
  std::map<int, TensorRef> parts;
  std::map<int, std::vector<std::int64_t>> splits;
};

struct Piece {
  std::size_t rank = 0;
  int part = 0;
};

// What makes up part `call.part` that the `index`th rank of the group got: tensors that follow each other, or that are
// reduced. `sent` has an entry for each rank. Where tensors are not there, `needed` tells which, and `sources` is
// empty; so it is where the kind is unknown.
struct Flow {
  std::vector<Piece> needed;
  std::vector<TensorRef> sources;
};
Flow flow_of(const CollectiveCall& call, std::size_t index, const std::map<std::size_t, SentTensors>& sent);

}  // namespace plumbline
