#include "server/store/cut.h"

#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace plumbline {

absl::StatusOr<Cut> read_cut(const SqlConnection& shared, const std::string& node) {
  auto statement = shared.prepare(
      "SELECT CAST(h.id AS TEXT), h.last_sequence, coalesce(n.shipped, 0) FROM history AS h LEFT JOIN nodes AS n ON "
      "n.node=?");
  if (!statement.ok()) return statement.status();
  const SqlReset reset(*statement);
  const auto row = statement->bind(std::string_view(node)).step();
  if (!row.ok()) return row.status();
  if (!*row) return absl::DataLossError("the shared history: expected its one row of \"history\", found none");
  return Cut{statement->text(0), statement->integer(1), statement->integer(2)};
}

std::string write_cut(const Cut& cut) { return absl::StrCat(cut.history, ":", cut.shared_through, ":", cut.own_after); }

absl::StatusOr<Cut> parse_cut(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Cut cut;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &cut.shared_through) ||
      !absl::SimpleAtoi(parts[2], &cut.own_after)) {
    return absl::InvalidArgumentError("page_token: expected one of this list");
  }
  cut.history = parts[0];
  return cut;
}

}  // namespace plumbline
