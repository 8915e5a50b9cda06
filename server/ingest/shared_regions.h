// Memory that a client shares with the daemon: registered once for a stream, then referred to by TensorData.
//
// A memfd is read with pread and never mapped: a client that shrinks it would kill a daemon that had mapped it
// (SIGBUS). Memory of a device is copied by the device. A chunk is copied into the step's own memory while its frame is
// taken, so nothing the client does afterwards changes what is audited, and no region is in use between two frames. Not
// thread-safe.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/v1/audit.pb.h"
#include "server/ingest/device_memory.h"
#include "server/ingest/payloads.h"
#include "server/ingest/violation.h"

namespace plumbline {

// Memory of another process, open as long as this lives.
class Region {
 public:
  explicit Region(std::uint64_t size) : size_(size) {}
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::uint64_t size() const { return size_; }
  virtual std::size_t piece_bytes() const = 0;  // To read at a time.
  // Bytes read, at least one; otherwise `failure` says why there are none. `meanwhile`: ByteSource.
  virtual std::size_t read(std::uint64_t offset, std::size_t bytes, void* to, const std::function<void()>& meanwhile,
                           std::string* failure) = 0;

  std::uint64_t bytes_read = 0;

 private:
  const std::uint64_t size_;
};

// A part of a region, which is read straight to where its bytes are kept. Ends early where the region does.
class RegionReader final : public ByteSource {
 public:
  RegionReader(Region* region, std::uint64_t offset, std::string* failure)
      : region_(region), at_(offset), failure_(failure) {}
  std::size_t read(std::size_t bytes_max, std::uint8_t* to, const std::function<void()>& meanwhile) override;

 private:
  Region* const region_;
  std::uint64_t at_;
  std::string* const failure_;
};

// Which process registered which handle of a device's memory: a handle opens that memory for whoever knows it.
// Thread-safe.
class DeviceHandles {
 public:
  // Until it is released as often. False: another process has registered it.
  bool claim(const std::string& handle, pid_t process);
  void release(const std::string& handle);

 private:
  struct Claim {
    pid_t process = 0;
    int times = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Claim> claims_;
};

class SharedRegions {
 public:
  // Whose memory is taken: that of one user and, since descriptors and handles are a process's, of one process, both
  // as the kernel tells them of the connection. What a client says of itself counts for nothing.
  struct Owner {
    uid_t user = geteuid();
    pid_t process = getpid();
  };
  // Takes memory of devices where they can be opened. `handles` may be null.
  explicit SharedRegions(Owner owner, OpenDeviceMemory open_device_memory = nullptr, DeviceHandles* handles = nullptr)
      : owner_(owner), open_device_memory_(std::move(open_device_memory)), handles_(handles) {}
  SharedRegions(const SharedRegions&) = delete;

  Violation add(const v1::Region& region);
  Violation drop(std::uint32_t id);
  void clear() { regions_.clear(); }

  // What is wrong with where a chunk is said to lie.
  Violation check(const v1::TensorData& data) const;
  // Reads a chunk that was checked; the reader is valid until the next call.
  RegionReader reader(const v1::TensorData& data);
  const std::string& failure() const { return failure_; }  // Why the last reader ended early.

  struct BytesRead {
    std::uint64_t memory = 0, device = 0;
  };
  BytesRead take_bytes_read();  // Since the last call.

 private:
  Violation open_memfd(const v1::Region& region, std::unique_ptr<Region>* opened) const;
  Violation open_device(const v1::Region& region, std::unique_ptr<Region>* opened) const;

  const Owner owner_;
  const OpenDeviceMemory open_device_memory_;
  DeviceHandles* const handles_;
  struct Opened {
    std::unique_ptr<Region> region;
    bool device = false;
  };
  std::map<std::uint32_t, Opened> regions_;
  std::string failure_;
  BytesRead dropped_;  // Read from regions that are gone.
};

}  // namespace plumbline
