#include "server/store/postgres/statement.h"

#include <endian.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline {
namespace {

// Types of columns, as PostgreSQL numbers them for all times (pg_type.dat).
enum Type : Oid { kBool = 16, kInt8 = 20, kInt2 = 21, kInt4 = 23, kFloat4 = 700, kFloat8 = 701 };

template <typename Bits>
Bits bits(const char* data) {
  Bits value;
  std::memcpy(&value, data, sizeof value);
  if constexpr (sizeof value == 8) return be64toh(value);
  if constexpr (sizeof value == 4) return be32toh(value);
  return be16toh(value);
}

template <typename Value, typename Bits>
Value cast(Bits from) {
  static_assert(sizeof(Value) == sizeof(Bits));
  Value value;
  std::memcpy(&value, &from, sizeof value);
  return value;
}

}  // namespace

PostgresStatement::PostgresStatement(const PostgresConnection* connection, std::string_view sql)
    : connection_(connection) {
  int number = 0;
  for (const char c : sql) {
    if (c == '?') {
      absl::StrAppend(&sql_, "$", ++number);
    } else {
      sql_ += c;
    }
  }
}

PostgresStatement::~PostgresStatement() { reset(); }

void PostgresStatement::bind(std::int64_t value) { parameters_.push_back({std::to_string(value), false}); }

void PostgresStatement::bind(double value) {
  if (std::isnan(value)) {
    parameters_.push_back({});
  } else {
    parameters_.push_back({absl::StrFormat("%.17g", value), false});
  }
}

void PostgresStatement::bind_text(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    bind_error_ = absl::InvalidArgumentError("a text: expected no byte of zero, which PostgreSQL cannot store");
  }
  parameters_.push_back({std::string(text), false});
}

void PostgresStatement::bind_blob(std::string_view bytes) { parameters_.push_back({std::string(bytes), true}); }

void PostgresStatement::reset() {
  row_.reset();
  if (state_ == State::kReading) connection_->drain().IgnoreError();  // Rows that nobody asked for.
  state_ = State::kNew;
  parameters_.clear();
  bind_error_ = absl::OkStatus();
}

absl::Status PostgresStatement::send() {
  if (!bind_error_.ok()) return bind_error_;
  if (auto ready = connection_->ready(); !ready.ok()) return ready;
  std::vector<const char*> values;
  std::vector<int> lengths, formats;
  for (const Parameter& parameter : parameters_) {
    values.push_back(parameter.value ? parameter.value->data() : nullptr);
    lengths.push_back(parameter.value ? static_cast<int>(parameter.value->size()) : 0);
    formats.push_back(parameter.binary ? 1 : 0);
  }
  const int count = static_cast<int>(values.size());
  PGconn* const raw = connection_->raw();
  constexpr int kBinary = 1;
  if (!std::exchange(ran_, true)) {
    auto sent = connection_->sent(
        PQsendQueryParams(raw, sql_.c_str(), count, nullptr, values.data(), lengths.data(), formats.data(), kBinary));
    if (!sent.ok()) return sent;
  } else {
    auto& prepared = connection_->prepared_;
    auto name = prepared.find(sql_);
    if (name == prepared.end()) {
      const std::string fresh = absl::StrCat("s", prepared.size());
      if (auto sent = connection_->sent(PQsendPrepare(raw, fresh.c_str(), sql_.c_str(), 0, nullptr)); !sent.ok()) {
        return sent;
      }
      if (auto made = connection_->drain(); !made.ok()) return made;
      name = prepared.emplace(sql_, fresh).first;
    }
    auto sent = connection_->sent(
        PQsendQueryPrepared(raw, name->second.c_str(), count, values.data(), lengths.data(), formats.data(), kBinary));
    if (!sent.ok()) return sent;
  }
  PQsetSingleRowMode(raw);
  return absl::OkStatus();
}

absl::StatusOr<bool> PostgresStatement::step() {
  if (state_ == State::kDone) return false;
  if (state_ == State::kNew) {
    if (auto sent = send(); !sent.ok()) return sent;
    state_ = State::kReading;
  }
  for (;;) {
    auto result = connection_->next();
    if (!result.ok()) {
      state_ = State::kDone;
      return result.status();
    }
    if (*result == nullptr) {
      state_ = State::kDone;
      return false;
    }
    if (auto checked = connection_->check(result->get()); !checked.ok()) {
      state_ = State::kDone;
      connection_->drain().IgnoreError();
      if (PQstatus(connection_->raw()) != CONNECTION_OK) return connection_->lose(checked);
      return checked;
    }
    if (PQresultStatus(result->get()) == PGRES_SINGLE_TUPLE) {
      row_ = *std::move(result);
      return true;
    }
  }
}

bool PostgresStatement::is_null(int column) const { return PQgetisnull(row_.get(), 0, column) != 0; }

std::int64_t PostgresStatement::integer(int column) const {
  if (is_null(column)) return 0;
  const char* const data = PQgetvalue(row_.get(), 0, column);
  switch (PQftype(row_.get(), column)) {
    case kInt8:
      return cast<std::int64_t>(bits<std::uint64_t>(data));
    case kInt4:
      return cast<std::int32_t>(bits<std::uint32_t>(data));
    case kInt2:
      return cast<std::int16_t>(bits<std::uint16_t>(data));
    case kBool:
      return *data;
    default:
      return 0;  // No query of ours asks for one.
  }
}

double PostgresStatement::real(int column) const {
  if (is_null(column)) return std::numeric_limits<double>::quiet_NaN();
  const char* const data = PQgetvalue(row_.get(), 0, column);
  switch (PQftype(row_.get(), column)) {
    case kFloat8:
      return cast<double>(bits<std::uint64_t>(data));
    case kFloat4:
      return static_cast<double>(cast<float>(bits<std::uint32_t>(data)));
    default:
      return static_cast<double>(integer(column));
  }
}

std::string PostgresStatement::text(int column) const {
  return {PQgetvalue(row_.get(), 0, column), static_cast<std::size_t>(PQgetlength(row_.get(), 0, column))};
}

}  // namespace plumbline
