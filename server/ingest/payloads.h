// The payloads of one open step: chunks put together in place, hashed as they come.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>
#include <xxhash.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/ingest/buffer_pool.h"
#include "server/ingest/trace.h"
#include "server/ingest/violation.h"

namespace plumbline {

// TensorData without its bytes: `size` of them follow, or lie in a region.
struct Chunk {
  PayloadId payload = 0;
  std::uint64_t offset = 0;
  std::uint64_t total = 0;
  std::uint64_t size = 0;
  bool in_region = false;
};

// Reads a data frame, an AuditRequest of `message_bytes`, up to its bytes, where it is written as every protobuf
// library writes it: the one field of its message, its own fields in order, nothing after the bytes. False: it is
// something else, which is to be parsed, and some of the stream was read.
bool read_chunk(google::protobuf::io::ZeroCopyInputStream* stream, std::uint64_t message_bytes, Chunk* chunk);

// Where the bytes of a chunk come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads its next bytes, at most `bytes_max`, as many as suit it, and does `meanwhile` once, beside that where it has
  // another thread. Returns how many; 0: there are no more.
  virtual std::size_t read(std::size_t bytes_max, std::uint8_t* to, const std::function<void()>& meanwhile) = 0;
};

class StreamSource final : public ByteSource {
 public:
  explicit StreamSource(google::protobuf::io::ZeroCopyInputStream* stream) : stream_(stream) {}
  std::size_t read(std::size_t bytes_max, std::uint8_t* to, const std::function<void()>& meanwhile) override;

 private:
  google::protobuf::io::ZeroCopyInputStream* const stream_;
};

class Payloads {
 public:
  // Buffers come from the pool, which may be null.
  explicit Payloads(std::shared_ptr<BufferPool> pool = nullptr) : pool_(std::move(pool)) {}

  // What is wrong with a chunk: its offset, its size, its total. `bytes_max` is what the step may still take beside
  // what its payloads will when they are complete.
  Violation check(const Chunk& chunk, std::uint64_t bytes_max) const;
  // Takes a chunk that was checked; its bytes are the next ones of the stream. Returns how many there were: if fewer
  // than the chunk's size, the payload is of no use any more.
  std::uint64_t add(const Chunk& chunk, ByteSource* source);

  std::optional<std::uint64_t> total(PayloadId id) const;  // nullopt: no chunk of it came.
  std::uint64_t announced() const { return announced_; }   // Bytes of those that are complete or begun, as announced.
  bool complete(PayloadId id) const;
  std::optional<PayloadId> first_incomplete() const;
  std::uint64_t received(PayloadId id) const;
  XXH128_hash_t hash(PayloadId id) const;  // The payload must be complete.

  // Hands over a complete payload; nullptr if there is none.
  Bytes bytes(PayloadId id) const;
  std::vector<PayloadId> ids() const;  // Ascending.

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  struct Payload {
    std::uint64_t total = 0, received = 0;
    std::shared_ptr<BufferPool::Buffer> bytes;       // From `received` on they mean nothing.
    std::unique_ptr<XXH3_state_t, FreeState> state;  // Only of payloads of more than one chunk, until complete.
    XXH128_hash_t hash{};

    bool complete() const { return received == total; }
  };
  std::shared_ptr<BufferPool> pool_;
  std::map<PayloadId, Payload> payloads_;
  std::uint64_t announced_ = 0;
};

}  // namespace plumbline
