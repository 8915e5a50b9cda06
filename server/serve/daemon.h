// The whole daemon, assembled: store, references, scheduler, pipeline, services, listeners.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/nats/connect.h"
#include "server/access/access.h"
#include "server/serve/address.h"
#include "server/serve/housekeeping.h"
#include "server/serve/tls.h"
#include "server/serve/worker_flags.h"

namespace plumbline {

struct DaemonOptions {
  std::vector<Address> listen;
  mode_t socket_mode = 0600;  // Unix sockets have this mode.
  gid_t socket_group = static_cast<gid_t>(-1);
  Access::Options access;
  TlsFiles tls;  // TCP listeners use them; without them nothing is encrypted.
  std::string data_dir;
  std::string metrics_listen;  // ADDRESS:PORT; empty: none.
  std::string profiles;        // Directory.
  WorkerList workers{{}, 1};
  DeviceMemory device_memory;
  std::int64_t sliced_work = 0;   // As cuda::open takes it.
  int threads = 1;                // All cpu workers together have so many.
  double step_work_limit = 1e16;  // Multiplications of a step, by estimate.
  std::uint64_t memory_bytes = 0;
  std::uint64_t trace_quota_bytes = 0;
  std::uint64_t disk_reserve_bytes = 0;  // So much of the data directory's file system is left to verdicts alone.
  absl::Duration reference_timeout = absl::Seconds(60);
  absl::Duration audit_timeout = absl::Minutes(5);
  absl::Duration orphan_timeout = absl::Seconds(10);
  absl::Duration open_timeout = absl::Seconds(10);
  absl::Duration step_timeout = absl::Seconds(60);
  absl::Duration connection_idle_timeout = absl::Minutes(5);
  absl::Duration connection_age = absl::InfiniteDuration();
  std::size_t connections_max = 2048, connections_of_a_peer_max = 1024;
  std::size_t streams_max = 1024, streams_of_a_user_max = 512;
  std::string store;                                // URL of the history that daemons share; empty: none.
  absl::Duration nodes_timeout = absl::Minutes(5);  // How long parts of steps of several daemons are waited for there.
  bool store_users_are_shared = false;  // A user's or token's name there is the same person's on every node.
  NatsSettings publish;                 // The server to whose stream verdicts go; without an address: none.
  KeepRules keep;
  Retention store_keep;  // Of the shared history.
  std::string version;
  std::string commit;
  std::vector<std::pair<std::string, std::string>> flags;  // Names and values, none of them a secret.
};

class Daemon {
 public:
  // Starts everything. Errors are one line that names the flag or path at fault.
  static absl::StatusOr<std::unique_ptr<Daemon>> start(const DaemonOptions& options);
  ~Daemon();

  // Reads policy and tokens again; where one is wrong, both stay as they were.
  absl::Status reload();

  // What keeps it from its work, by check ("store", "disk", "workers", "queue", "draining"); an empty text: nothing.
  // Blocks on the disk.
  std::vector<std::pair<std::string, std::string>> readiness() const;
  // Brings gRPC's health up to date, and gives back memory that is not needed any more; call about once a second.
  void tick();

  // Health to NOT_SERVING, streams told to finish, what is queued audited, all within `timeout`; then everything is
  // closed. True if nothing was cut off.
  bool drain(absl::Duration timeout);

  const std::string& metrics_address() const;  // With the real port; empty: none.
  std::vector<std::string> profile_names() const;
  std::vector<std::string> addresses() const;  // With the real ports.
  std::string workers() const;

 private:
  struct State;
  explicit Daemon(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace plumbline
