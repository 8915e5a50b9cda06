// Every limit that ingest holds a client to, and the relations between them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::limits {

// Messages.
inline constexpr std::uint64_t kChunkBytesMax = 1u << 20;                        // Of TensorData.data.
inline constexpr std::uint64_t kMessageBytesMax = kChunkBytesMax + (64u << 10);  // Of one AuditRequest.
inline constexpr std::uint64_t kBatchBytesMax = 256u << 10;                      // Of one that holds several frames.
inline constexpr std::uint64_t kRegionChunkBytesMax = 8u
                                                      << 20;  // Of a chunk in shared memory: a millisecond of copying.
inline constexpr std::size_t kRegionsMax = 8;                 // Of a stream: each holds a descriptor.
inline constexpr std::uint64_t kWindowBytesMin = 2 * kMessageBytesMax;  // Credit ahead of what was received.
inline constexpr std::uint64_t kWindowBytesMax = 16u << 20;
inline constexpr std::uint64_t kResponseBytesQueuedMax = 16u << 20;  // Unread by the client: reading stops.

// What a payload takes beside its bytes.
inline constexpr std::uint64_t kPayloadEntryBytes = 256;

// Time.
inline constexpr double kWorkPerSecondAndThread = 1e11;            // Multiplications in fp64 that no core exceeds.
inline constexpr std::uint64_t kStepBytesPerSecondMin = 1u << 20;  // An open step's, beyond --step-timeout.

// One step.
inline constexpr std::int64_t kStepMax = (std::int64_t{1} << 53) - 1;  // Its number: JSON has none beyond.
inline constexpr std::int64_t kLeavesMax = 1 << 20;
inline constexpr std::int64_t kOpsMax = 1 << 20;
inline constexpr std::int64_t kTapsMax = 1 << 16;
inline constexpr std::int64_t kPayloadsMax = 1 << 21;
inline constexpr int kMissedReasonsMax = 64;
inline constexpr int kModulesMax = 4096;             // Named by a scope, and the same that it leaves out.
inline constexpr int kTermsMax = 4096;               // Of a tap.
inline constexpr int kArgumentsMax = 256;            // Of an operation.
inline constexpr int kResultsMax = 1 << 14;          // Of an operation; a foreach operation has one for each parameter.
inline constexpr int kListMax = 1 << 16;             // Elements of an argument that is a list.
inline constexpr std::int64_t kTextBytesMax = 4096;  // Of a name, a source line, a text argument.

// One tensor.
inline constexpr int kDimensionsMax = 16;
inline constexpr std::int64_t kElementsMax = std::int64_t{1} << 40;  // Of a storage or a window.
inline constexpr int kElementBytesMax = 8;

// Identities.
inline constexpr int kIdentityBytesMax = 128;
inline constexpr int kRanksMax = 65536;
inline constexpr int kRanksJoinedMax = 64;  // Of one run, judged together.
inline constexpr int kRunsMax = 4096;       // Remembered by one daemon; the oldest without a stream goes first.
inline constexpr int kStepsQueuedMax = 64;  // Of one stream, not yet answered: reading stops.

// Shares of --memory-limit. What streams hold (steps that are open, queued or waiting for their reference) and what
// audits work in are kept apart, so that open steps can never take the memory that would finish them.
inline constexpr std::uint64_t kIngestShare = 4;             // All steps held: limit / 4.
inline constexpr std::uint64_t kStepShare = 8;               // One step: limit / 8.
inline constexpr std::uint64_t kBufferShare = 8;             // Buffers that wait to be used again: limit / 8.
inline constexpr std::uint64_t kMemoryBytesMin = 64u << 20;  // Smallest --memory-limit.

static_assert(kChunkBytesMax < kMessageBytesMax, "a chunk must fit its message");
static_assert(kBatchBytesMax < kMessageBytesMax);
static_assert(kWindowBytesMin >= 2 * kMessageBytesMax, "a client must be able to send while an Ack is on its way");
static_assert(kWindowBytesMin <= kWindowBytesMax);
// What is left for audits.
constexpr std::uint64_t audit_bytes(std::uint64_t limit_bytes) {
  return limit_bytes - limit_bytes / kIngestShare - limit_bytes / kBufferShare;
}

static_assert(audit_bytes(kMemoryBytesMin) >= kMemoryBytesMin / 2, "audits get the larger part");
static_assert(kStepShare >= kIngestShare, "one step must fit what all steps may hold");
static_assert(kMemoryBytesMin / kStepShare >= 4 * kMessageBytesMax, "the smallest step budget must hold some chunks");
static_assert(kElementsMax <= INT64_MAX / kElementBytesMax, "bytes of a tensor must fit int64");
static_assert(kPayloadsMax >= kLeavesMax + kTapsMax, "every leaf and tap may have a payload");

}  // namespace plumbline::limits
