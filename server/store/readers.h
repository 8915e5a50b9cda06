// Connections that read, so that operators' queries wait neither for each other nor make a step's admission wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "server/store/sql.h"

namespace plumbline {

// Thread-safe.
class Readers {
 public:
  explicit Readers(std::vector<std::unique_ptr<SqlConnection>> connections);

  // A connection of the holder's own, given back at the end of the scope. Its statements end with CANCELLED once `stop`
  // (which may be empty) says so.
  class Lease {
   public:
    Lease(Readers* readers, const SqlConnection* connection, const std::function<bool()>& stop)
        : readers_(readers), connection_(connection), stop_(std::in_place, *connection, stop) {}
    ~Lease() {
      stop_.reset();
      readers_->give_back(connection_);
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    const SqlConnection& operator*() const { return *connection_; }
    const SqlConnection* operator->() const { return connection_; }

   private:
    Readers* const readers_;
    const SqlConnection* const connection_;
    std::optional<SqlStop> stop_;
  };
  Lease take(const std::function<bool()>& stop);  // Waits for a free one. `stop` must outlive the lease.

 private:
  void give_back(const SqlConnection* connection);

  const std::vector<std::unique_ptr<SqlConnection>> connections_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<const SqlConnection*> free_;
};

}  // namespace plumbline
