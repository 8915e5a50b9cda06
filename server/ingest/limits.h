// Every limit that ingest holds a client to, and the relations between them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::limits {

// Messages.
inline constexpr std::uint64_t kChunkBytesMax = 1u << 20;                        // TensorData.data holds no more.
inline constexpr std::uint64_t kMessageBytesMax = kChunkBytesMax + (64u << 10);  // One AuditRequest is no larger.
// One that holds several frames is no larger.
inline constexpr std::uint64_t kBatchBytesMax = 256u << 10;
// A chunk in shared memory is no larger, so that copying it takes a millisecond.
inline constexpr std::uint64_t kRegionChunkBytesMax = 8u << 20;
inline constexpr std::size_t kRegionsMax = 8;  // A stream has no more, since each holds a descriptor.
// Credit ahead of what was received. It is what a stream may have in the transport's buffers beside --memory-limit;
// a message that was read is charged before it is parsed, or waits in its place.
inline constexpr std::uint64_t kWindowBytesMin = 2 * kMessageBytesMax;
inline constexpr std::uint64_t kWindowBytesMax = 16u << 20;
// Parsed, a message takes up to some 40 times its bytes. One that is larger than this is charged before, and leaves
// nothing behind.
inline constexpr std::uint64_t kParsedKeptBytesMax = 4u << 10;
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
inline constexpr int kModulesMax = 4096;   // Named by a scope, and the same that it leaves out.
inline constexpr int kTermsMax = 4096;     // A tap has no more.
inline constexpr int kArgumentsMax = 256;  // An operation has no more.
// An operation has no more; a foreach operation has one for each parameter.
inline constexpr int kResultsMax = 1 << 14;
inline constexpr int kListMax = 1 << 16;             // Elements of an argument that is a list.
inline constexpr std::int64_t kTextBytesMax = 4096;  // A name, a source line or a text argument is no longer.

// One tensor.
inline constexpr int kDimensionsMax = 16;
inline constexpr std::int64_t kElementsMax = std::int64_t{1} << 40;  // A storage or a window has no more.
inline constexpr int kElementBytesMax = 8;

// Identities.
inline constexpr int kIdentityBytesMax = 128;
inline constexpr int kRanksMax = 65536;
inline constexpr int kRanksJoinedMax = 64;  // So many ranks of one run are judged together.
inline constexpr int kRunsMax = 4096;       // Remembered by one daemon; the oldest without a stream goes first.
inline constexpr int kStepsQueuedMax = 64;  // Reading stops where one stream has so many that are not yet answered.

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
