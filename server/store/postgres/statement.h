// A statement of a PostgresConnection. Its rows come one by one, so that a page costs no more memory than it takes;
// what is left of them when it is reset is read and forgotten.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/postgres/postgres.h"

namespace plumbline {

class PostgresStatement final : public SqlStatement::Prepared {
 public:
  // `sql` with `?` for its parameters, and in no other place.
  PostgresStatement(const PostgresConnection* connection, std::string_view sql);
  ~PostgresStatement() override;

  void bind(std::int64_t value) override;
  void bind(double value) override;
  void bind_text(std::string_view text) override;
  void bind_blob(std::string_view bytes) override;
  void reset() override;
  absl::StatusOr<bool> step() override;
  std::int64_t integer(int column) const override;
  double real(int column) const override;
  std::string text(int column) const override;
  bool is_null(int column) const override;

 private:
  enum class State { kNew, kReading, kDone };
  struct Parameter {
    std::optional<std::string> value;  // None: NULL.
    bool binary = false;
  };

  absl::Status send();

  const PostgresConnection* const connection_;
  std::string sql_;  // With $1, $2, ...
  std::vector<Parameter> parameters_;
  absl::Status bind_error_;
  State state_ = State::kNew;
  bool ran_ = false;  // Once; from the second time on it is prepared on the server.
  PostgresConnection::Result row_;
};

}  // namespace plumbline
