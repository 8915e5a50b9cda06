// Brings a schema of a PostgreSQL database to the version that FORMAT.md describes.
#pragma once

#include "absl/status/status.h"
#include "server/store/postgres/postgres.h"

namespace plumbline {

inline constexpr int kPostgresVersion = 8;

// Makes the tables, or brings them from an older version to ours, each version in a transaction of its own; daemons
// that do so at one time take turns. Tables that are newer than ours stay, and we go on with them, where the history
// says that versions like ours may. FAILED_PRECONDITION: it says that they may not, or the schema has tables of another
// application, and is left as it is; otherwise as the server answers.
absl::Status upgrade_postgres(const PostgresConnection& connection);

// Within a transaction that writes: FAILED_PRECONDITION where a newer daemon has brought the schema further since than
// we may write to; UNAVAILABLE where somebody put an older schema back, which upgrade_postgres() is to bring to ours.
absl::Status check_postgres_version(const PostgresConnection& connection);

}  // namespace plumbline
