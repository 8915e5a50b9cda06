// A PostgreSQL server for tests, in a temporary directory, with a unix socket alone.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "server/store/postgres/open.h"
#include "server/store/postgres/postgres.h"
#include "tests/unit/store/conformance.h"

namespace plumbline {

// Takes from a schema's tables what versions after 4 only added.
inline constexpr char kBackToVersion4[] =
    "ALTER TABLE history DROP COLUMN reached; DROP TABLE golden_steps, golden_runs, node_parts, node_steps, "
    "pair_steps, "
    "pair_runs";

// Not thread-safe. Tests with root's rights run it as "nobody", since PostgreSQL refuses root.
class PostgresServer {
 public:
  static PostgresServer& shared();  // Started when it is first asked for, and ended with the process.

  // Without fsync it is fast, and loses what it acknowledged when the machine (not the server) fails.
  explicit PostgresServer(bool fsync = false, int connections = 200);
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  void start();
  void crash();  // Every process of it ends at once, as after kill -9.

  void freeze();  // Every process of it stops, and goes on at thaw().
  void thaw();

  std::string url() const;
  std::string fresh_schema();  // A name that nobody has used here.
  // A connection beside the store's, whose names are looked for in that schema.
  std::unique_ptr<PostgresConnection> connect(const std::string& schema) const;

 private:
  std::vector<pid_t> processes() const;

  const bool fsync_;
  const int connections_;
  std::string folder_;
  pid_t server_ = -1;
  int schemas_ = 0;
};

class PostgresEngine final : public StoreEngine {
 public:
  PostgresEngine() { options.url = PostgresServer::shared().url(); }
  absl::StatusOr<std::unique_ptr<VerdictStore>> open() override { return open_postgres_store(options); }

  PostgresOptions options{.url = "", .schema = PostgresServer::shared().fresh_schema()};
};

}  // namespace plumbline
