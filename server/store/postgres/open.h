// The PostgreSQL engine: one history for several daemons, in a schema of a database.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/store.h"

namespace plumbline {

struct PostgresOptions {
  // postgresql://USER@HOST/DATABASE with libpq's parameters, but no password: that comes from a file (~/.pgpass,
  // passfile=PATH) or from $PGPASSWORD.
  std::string url;
  std::string schema = "plumbline";                   // Lower-case letters, digits and underscores.
  absl::Duration connect_timeout = absl::Seconds(5);  // Of one address; 2 s at least.
  absl::Duration statement_timeout = absl::Seconds(30);
  // As those of SqliteOptions.
  std::function<void(const std::string&)> trouble = {};
  std::function<void(double seconds, std::size_t records, bool stored)> timed = {};
};

// Opens the history, and makes or upgrades its tables (server/store/FORMAT.md). A store holds two connections, one more
// for each query at one time (kReaders at most) and one where there is a subscription. OK for a record means that the
// server has it on disk. Where the connection is lost during a commit the answer is UNAVAILABLE, and the record may be
// there: it is appended again, which is no second one.
//
// INVALID_ARGUMENT: the URL is none, or has a password; or the schema's name. UNAVAILABLE: the server cannot be
// reached, or does not answer in time. PERMISSION_DENIED: it lets us not in, or not write. FAILED_PRECONDITION: the
// schema is of another application or a newer version, and is untouched; the server is older than version 14; the
// database is not of encoding UTF8.
absl::StatusOr<std::unique_ptr<VerdictStore>> open_postgres_store(PostgresOptions options);

}  // namespace plumbline
