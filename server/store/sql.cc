#include "server/store/sql.h"

namespace plumbline {

absl::Status SqlStatement::run() {
  absl::StatusOr<bool> row = true;
  while (row.ok() && *row) row = step();
  reset();
  return row.status();
}

absl::StatusOr<std::int64_t> SqlConnection::integer(std::string_view sql) const {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.status();
  auto row = statement->step();
  if (!row.ok()) return row.status();
  return *row ? statement->integer(0) : 0;
}

absl::StatusOr<std::string> SqlConnection::text(std::string_view sql) const {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.status();
  auto row = statement->step();
  if (!row.ok()) return row.status();
  return *row ? statement->text(0) : std::string();
}

}  // namespace plumbline
