#include "server/ingest/payloads.h"

#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // It hashes by the widest vectors of this machine, three times as fast.
#endif

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cstring>

#include "plumbline/v1/audit.pb.h"
#include "server/ingest/limits.h"

namespace plumbline {

using absl::StrCat;

namespace {

constexpr std::uint64_t kRoom = 4 << 20;  // Bytes that are made room for at a time.

}  // namespace

Violation Payloads::check(const Chunk& chunk, std::uint64_t bytes_max) const {
  const std::uint64_t size = chunk.size;
  if (chunk.payload == 0) return invalid("data.payload", "an id above 0", 0);
  const char* const size_field = chunk.in_region ? "data.length" : "data.data";
  const std::uint64_t size_max = chunk.in_region ? limits::kRegionChunkBytesMax : limits::kChunkBytesMax;
  if (size > size_max) return invalid(size_field, StrCat("at most ", size_max, " bytes"), StrCat(size, " bytes"));
  const auto found = payloads_.find(chunk.payload);
  const std::uint64_t received = found == payloads_.end() ? 0 : found->second.received;
  if (found != payloads_.end() && chunk.total != found->second.total) {
    return invalid("data.total", StrCat(found->second.total, " as in the payload's first chunk"), chunk.total);
  }
  if (chunk.offset != received) {
    return invalid("data.offset", StrCat(received, ", the bytes of payload ", chunk.payload, " received so far"),
                   chunk.offset);
  }
  if (size > chunk.total - received) {
    return invalid(size_field, StrCat("at most ", chunk.total - received, " bytes to the end of the payload"),
                   StrCat(size, " bytes"));
  }
  if (size == 0 && chunk.total > 0) return invalid(size_field, "a chunk that is not empty", "0 bytes");
  if (found != payloads_.end()) {
    if (size == 0) return invalid("data.payload", "a payload that is not complete", chunk.payload);
    return {};
  }
  if (static_cast<std::int64_t>(payloads_.size()) >= limits::kPayloadsMax) {
    return exhausted("data.payload", StrCat("a step may have at most ", limits::kPayloadsMax, " payloads"));
  }
  if (chunk.total > bytes_max) {
    return exhausted("data.total", StrCat("the payload's ", chunk.total, " bytes are more than the ", bytes_max,
                                          " that are left of the step's share of --memory-limit"));
  }
  return {};
}

bool read_chunk(google::protobuf::io::ZeroCopyInputStream* stream, std::uint64_t message_bytes, Chunk* chunk) {
  using google::protobuf::internal::WireFormatLite;
  constexpr auto varint = WireFormatLite::WIRETYPE_VARINT;
  constexpr auto delimited = WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  constexpr auto tag = &WireFormatLite::MakeTag;
  google::protobuf::io::CodedInputStream coded(stream);
  std::uint32_t size = 0;
  if (coded.ReadTagNoLastTag() != tag(v1::AuditRequest::kDataFieldNumber, delimited) || !coded.ReadVarint32(&size) ||
      static_cast<std::uint64_t>(coded.CurrentPosition()) + size != message_bytes) {
    return false;
  }
  std::uint32_t next = coded.ReadTagNoLastTag();
  const auto read = [&](int field, std::uint64_t* value) {
    if (next != tag(field, varint)) return true;  // 0, and so not written.
    if (!coded.ReadVarint64(value)) return false;
    next = coded.ReadTagNoLastTag();
    return true;
  };
  if (!read(v1::TensorData::kPayloadFieldNumber, &chunk->payload) ||
      !read(v1::TensorData::kOffsetFieldNumber, &chunk->offset) ||
      !read(v1::TensorData::kTotalFieldNumber, &chunk->total) ||
      next != tag(v1::TensorData::kDataFieldNumber, delimited) || !coded.ReadVarint32(&size)) {
    return false;
  }
  chunk->size = size;
  return static_cast<std::uint64_t>(coded.CurrentPosition()) + size == message_bytes;
}

std::size_t StreamSource::read(std::size_t bytes_max, std::uint8_t* to, const std::function<void()>& meanwhile) {
  meanwhile();
  const void* piece = nullptr;
  int size = 0;
  if (bytes_max == 0 || !stream_->Next(&piece, &size)) return 0;
  const auto taken = std::min(bytes_max, static_cast<std::size_t>(size));
  std::memcpy(to, piece, taken);
  if (taken < static_cast<std::size_t>(size)) stream_->BackUp(size - static_cast<int>(taken));
  return taken;
}

std::uint64_t Payloads::add(const Chunk& chunk, ByteSource* source) {
  Payload& payload = payloads_[chunk.payload];
  if (!payload.bytes) {
    payload.total = chunk.total;
    announced_ += chunk.total;
    payload.bytes = take_buffer(pool_, chunk.total);
  }
  const bool whole = chunk.size == payload.total && chunk.size <= limits::kChunkBytesMax;
  if (!whole && !payload.state) {
    payload.state.reset(XXH3_createState());
    XXH3_128bits_reset(payload.state.get());
  }
  BufferPool::Buffer& bytes = *payload.bytes;
  const std::uint64_t end = payload.received + chunk.size;
  std::uint64_t hashed = payload.received;
  const auto hash = [&] {
    if (!whole) XXH3_128bits_update(payload.state.get(), bytes.data() + hashed, payload.received - hashed);
  };
  for (std::size_t taken = 1; taken > 0 && payload.received < end;) {
    // Fresh memory is cleared piece by piece, as its bytes come; what was used before need not be.
    const std::uint64_t room = std::min(end, payload.received + kRoom);
    if (bytes.size() < room) bytes.resize(room);
    taken = source->read(room - payload.received, bytes.data() + payload.received, hash);  // The last ones are cached.
    hashed = payload.received;
    payload.received += taken;
  }
  hash();
  if (payload.complete()) {
    bytes.resize(payload.total);
    payload.hash = whole ? XXH3_128bits(bytes.data(), bytes.size()) : XXH3_128bits_digest(payload.state.get());
    payload.state.reset();
  }
  return chunk.size - (end - payload.received);
}

std::optional<std::uint64_t> Payloads::total(PayloadId id) const {
  const auto found = payloads_.find(id);
  if (found == payloads_.end()) return std::nullopt;
  return found->second.total;
}

std::uint64_t Payloads::received(PayloadId id) const {
  const auto found = payloads_.find(id);
  return found == payloads_.end() ? 0 : found->second.received;
}

bool Payloads::complete(PayloadId id) const {
  const auto found = payloads_.find(id);
  return found != payloads_.end() && found->second.complete();
}

std::optional<PayloadId> Payloads::first_incomplete() const {
  for (const auto& [id, payload] : payloads_) {
    if (!payload.complete()) return id;
  }
  return std::nullopt;
}

XXH128_hash_t Payloads::hash(PayloadId id) const {
  const auto found = payloads_.find(id);
  return found == payloads_.end() ? XXH128_hash_t{} : found->second.hash;
}

Bytes Payloads::bytes(PayloadId id) const { return complete(id) ? Bytes(payloads_.find(id)->second.bytes) : nullptr; }

std::vector<PayloadId> Payloads::ids() const {
  std::vector<PayloadId> ids;
  ids.reserve(payloads_.size());
  for (const auto& [id, payload] : payloads_) ids.push_back(id);
  return ids;
}

}  // namespace plumbline
