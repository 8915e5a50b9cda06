#include "server/store/filter.h"

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

std::int64_t microseconds(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1'000'000 + time.nanos() / 1000;
}

}  // namespace

Where::Where(const v1::Filter& filter, const Visibility& seen) {
  if (!filter.project().empty()) add("project=?", filter.project());
  if (!filter.job().empty()) add("job=?", filter.job());
  if (!filter.run().empty()) add("run=?", filter.run());
  if (filter.has_rank()) add("rank=?", std::int64_t{filter.rank()});
  if (filter.verdict() != v1::OUTCOME_UNSPECIFIED) add("outcome=?", std::int64_t{filter.verdict()});
  if (filter.cause() != v1::CAUSE_UNSPECIFIED) add("cause=?", std::int64_t{filter.cause()});
  if (filter.grade() != v1::GRADE_UNSPECIFIED) add("grade=?", std::int64_t{filter.grade()});
  if (filter.step_min() != 0) add("step>=?", filter.step_min());
  if (filter.step_max() != 0) add("step<=?", filter.step_max());
  if (filter.has_time_min()) add("time_us>=?", microseconds(filter.time_min()));
  if (filter.has_time_max()) add("time_us<?", microseconds(filter.time_max()));
  if (filter.has_surprise_min()) add("surprise>=?", filter.surprise_min());
  if (!filter.trace_id().empty()) add("trace_id=?", filter.trace_id());
  see(seen, "verdicts");
}

void Where::see(const Visibility& seen, const std::string& table) {
  if (table == "verdicts") {
    constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    if (seen.part.after > 0) add("sequence>?", seen.part.after);
    if (seen.part.through != kAll) add("sequence<=?", seen.part.through);
    if (!seen.part.but_of.empty()) add("node<>?", seen.part.but_of);
  }
  if (seen.all) return;
  absl::StrAppend(&sql, " AND (", owned(table, !seen.node.empty()));
  values.emplace_back(seen.owner);
  if (!seen.node.empty()) values.emplace_back(seen.node);
  for (const std::string& project : seen.projects) {
    absl::StrAppend(&sql, " OR ", table, ".project=?");
    values.emplace_back(project);
  }
  absl::StrAppend(&sql, ")");
}

void Where::add(const std::string& condition) { absl::StrAppend(&sql, " AND ", condition); }

void Where::add(const std::string& condition, std::variant<std::string, std::int64_t, double> value) {
  add(condition);
  values.push_back(std::move(value));
}

void Where::add_after(const Order& order, const ListPlace& place) {
  const char* const beyond = order.descending ? "<" : ">";
  if (order.key == Order::Key::kSequence) return add(absl::StrCat("sequence", beyond, "?"), place.sequence);
  add(absl::StrCat("(", order_key(order), ",sequence)", beyond, "(?,?)"));
  if (order.key == Order::Key::kSurprise) {
    double key = 0;
    (void)absl::SimpleAtod(place.key, &key);  // Ours.
    values.emplace_back(key);
  } else {
    std::int64_t key = 0;
    (void)absl::SimpleAtoi(place.key, &key);
    values.emplace_back(key);
  }
  values.emplace_back(place.sequence);
}

void Where::bind(SqlStatement& statement) const {
  for (const auto& value : values) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      statement.bind(std::string_view(*text));
    } else if (const auto* number = std::get_if<double>(&value)) {
      statement.bind(*number);
    } else {
      statement.bind(std::get<std::int64_t>(value));
    }
  }
}

std::string owned(const std::string& table, bool of_node) {
  if (table == "runs") return absl::StrCat("(runs.owner=?", of_node ? " AND runs.node=?" : "", ")");
  return absl::StrCat("EXISTS(SELECT 1 FROM runs AS r WHERE r.project=", table, ".project AND r.job=", table, ".job",
                      table == "jobs" ? "" : absl::StrCat(" AND r.run=", table, ".run AND r.rank=", table, ".rank"),
                      " AND r.owner=?", of_node ? " AND r.node=?" : "", ")");
}

std::string order_key(const Order& order) {
  switch (order.key) {
    case Order::Key::kSequence:
      return "sequence";
    case Order::Key::kTime:
      return "time_us";
    case Order::Key::kStep:
      return "step";
    case Order::Key::kSurprise:
      return "coalesce(surprise,-1.0)";  // What was not asked comes before what is no surprise.
  }
  return "sequence";
}

std::string order_sql(const Order& order) {
  const char* const direction = order.descending ? " DESC" : "";
  if (order.key == Order::Key::kSequence) return absl::StrCat("ORDER BY sequence", direction);
  return absl::StrCat("ORDER BY ", order_key(order), direction, ",sequence", direction);
}

}  // namespace plumbline
