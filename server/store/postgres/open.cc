#include "server/store/postgres/open.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/postgres/listener.h"
#include "server/store/postgres/postgres.h"
#include "server/store/postgres/schema.h"
#include "server/store/sql_store.h"

namespace plumbline {
namespace {

constexpr std::size_t kSchemaNameMax = 63;  // PostgreSQL cuts names there.

absl::Status check_schema_name(const std::string& name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (!name.empty() && name.size() <= kSchemaNameMax && std::all_of(name.begin(), name.end(), plain)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("schema: expected 1 to ", kSchemaNameMax,
                                                 " lower-case letters, digits and underscores, found \"",
                                                 name.substr(0, kSchemaNameMax), "\""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<VerdictStore>> open_postgres_store(PostgresOptions options) {
  if (auto checked = check_postgres_url(options.url); !checked.ok()) return checked;
  if (auto checked = check_schema_name(options.schema); !checked.ok()) return checked;
  const PostgresSettings settings{options.url, options.schema, options.connect_timeout, options.statement_timeout};
  auto writer = std::make_unique<PostgresConnection>(settings);
  if (auto connected = writer->connect(); !connected.ok()) return connected;
  if (auto upgraded = upgrade_postgres(*writer); !upgraded.ok()) return upgraded;

  SqlParts parts;
  parts.lost = [connection = writer.get()] { return check_postgres_version(*connection); };
  parts.writer = std::move(writer);
  parts.points = std::make_unique<PostgresConnection>(settings);
  for (int i = 0; i < VerdictStore::kReaders; ++i) {
    parts.readers.push_back(std::make_unique<PostgresConnection>(settings));
  }
  parts.watch = [settings](std::function<void()> notify) -> std::shared_ptr<void> {
    return std::make_shared<PostgresListener>(settings, std::move(notify));
  };
  parts.trouble = std::move(options.trouble);
  parts.timed = std::move(options.timed);
  return make_sql_store(std::move(parts));
}

}  // namespace plumbline
