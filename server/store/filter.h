// What a question about verdicts selects, and in which order, as SQL.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "plumbline/v1/query.pb.h"
#include "server/store/sql.h"
#include "server/store/store.h"
#include "server/store/visibility.h"

namespace plumbline {

// Conditions, and the values of their parameters.
struct Where {
  std::string sql = "TRUE";
  std::vector<std::variant<std::string, std::int64_t, double>> values;

  Where() = default;
  Where(const v1::Filter& filter, const Visibility& seen);
  void add(const std::string& condition);
  void add(const std::string& condition, std::variant<std::string, std::int64_t, double> value);
  // What may be seen of "verdicts", "errors", "gaps", "runs" or "jobs".
  void see(const Visibility& seen, const std::string& table);
  // What comes after `place` in `order`.
  void add_after(const Order& order, const ListPlace& place);
  void bind(SqlStatement& statement) const;
};

// The condition that a row's run was opened by the owner, who is its parameter; of jobs: one of their runs. `of_node`:
// and on a daemon, which is the next parameter.
std::string owned(const std::string& table, bool of_node);

// "ORDER BY ..." of a list; its rows have order_key(order) as their place's key.
std::string order_sql(const Order& order);
std::string order_key(const Order& order);

}  // namespace plumbline
