// Brings a schema of a PostgreSQL database to the version that FORMAT.md describes.
#pragma once

#include "absl/status/status.h"
#include "server/store/postgres/postgres.h"

namespace plumbline {

inline constexpr int kPostgresVersion = 4;

// Makes the tables, or brings them from an older version to ours, each version in a transaction of its own; daemons
// that do so at one time take turns. FAILED_PRECONDITION: the schema has tables of another application or of a newer
// version, and is left as it is; otherwise as the server answers.
absl::Status upgrade_postgres(const PostgresConnection& connection);

// Within a transaction that writes: FAILED_PRECONDITION where a newer daemon has brought the schema further since.
absl::Status check_postgres_version(const PostgresConnection& connection);

}  // namespace plumbline
