// Memory that a client shares with the daemon: registered once for a stream, then referred to by TensorData.
//
// Read with pread and never mapped: a client that shrinks its memfd would kill a daemon that had mapped it (SIGBUS). A
// chunk is copied into the step's own memory while its frame is taken, so nothing the client does afterwards changes
// what is audited, and no region is in use between two frames. Not thread-safe.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <vector>

#include "plumbline/v1/audit.pb.h"
#include "server/ingest/violation.h"

namespace plumbline {

// A part of a file, through a piece of memory that stays in the cache. Ends early where the file does.
class RegionReader final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  RegionReader(int descriptor, std::uint64_t offset, std::uint64_t length, std::vector<std::uint8_t>* piece,
               std::uint64_t* bytes_read)
      : descriptor_(descriptor), at_(offset), left_(length), piece_(piece), bytes_read_(bytes_read) {}

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override { backed_up_ += count; }
  bool Skip(int count) override;
  std::int64_t ByteCount() const override { return taken_ - backed_up_; }

 private:
  const int descriptor_;
  std::uint64_t at_;
  std::uint64_t left_;
  std::vector<std::uint8_t>* const piece_;
  std::uint64_t* const bytes_read_;
  int piece_size_ = 0;
  int backed_up_ = 0;
  std::int64_t taken_ = 0;
};

class SharedRegions {
 public:
  // Takes memory of this user alone.
  explicit SharedRegions(uid_t owner = geteuid()) : owner_(owner) {}
  ~SharedRegions() { clear(); }
  SharedRegions(const SharedRegions&) = delete;

  Violation add(const v1::Region& region);
  Violation drop(std::uint32_t id);
  void clear();

  // What is wrong with where a chunk is said to lie.
  Violation check(const v1::TensorData& data) const;
  // Of a chunk that was checked; valid until the next call.
  RegionReader reader(const v1::TensorData& data);
  std::uint64_t take_bytes_read();  // Since the last call.

 private:
  struct Opened {
    int descriptor = -1;
    std::uint64_t size = 0;
  };
  const uid_t owner_;
  std::map<std::uint32_t, Opened> regions_;
  std::vector<std::uint8_t> piece_;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace plumbline
