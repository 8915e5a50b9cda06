// What a node tells the others of its step (node_part.proto), from the traces of its ranks. Tensors do not travel: of
// what crosses between nodes there are fingerprints and sketches.
//
// Bytes: kPartBytesMax at most; calls that do not fit are left out from the first one on, and counted. A call takes
// some 1.6 kB for what was sent and the same for what was received where it sums, whatever the tensors' sizes and
// however many ranks the node has (of results that its ranks have alike there is one), and some 20 bytes for each rank
// of the group; a copy 16 bytes a rank.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/profile.h"
#include "plumbline/v1/node_part.pb.h"
#include "server/ingest/collective.h"
#include "server/ingest/trace.h"

namespace plumbline {

inline constexpr int kNodePartVersion = 1;
inline constexpr std::size_t kPartBytesMax = 1u << 20;
inline constexpr std::size_t kReplicasMax = 4096;

// Of the traces of all ranks here, ascending by rank, all of one step. Without the verdict.
v1::NodePart make_part(const std::vector<std::shared_ptr<const Trace>>& traces, std::int32_t ranks_of_run,
                       bool replicated, const Profile& profile);
// Where some of the ranks here are missing, of which nothing can be compared.
v1::NodePart part_without_calls(const std::vector<std::shared_ptr<const Trace>>& traces,
                                const std::vector<std::int32_t>& missing, std::int32_t ranks_of_run);

// The verdict of these ranks alone, as it travels.
void set_verdict(const v1::Verdict& verdict, v1::NodePart* part);

// What all nodes draw from in a call, and for one share of a part of it.
std::uint64_t call_seed(const StepIdentity& step, const CollectiveCall& call);
std::uint64_t share_seed(std::uint64_t call, int part, std::size_t share);

// As many shares as a tensor that a rank sends is cut into, and the elements of each; empty: they do not add up.
std::vector<std::int64_t> shares_of(const std::string& kind, const std::vector<std::int64_t>& splits,
                                    std::int64_t count, std::size_t ranks);

}  // namespace plumbline
