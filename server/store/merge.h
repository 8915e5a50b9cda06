// Two sorted sources as one list.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline {

// Rows that come page by page: `fetch` takes the last row before a page (null: none), and answers with an empty page at
// the end alone.
template <typename Row>
class Pages {
 public:
  using Fetch = std::function<absl::StatusOr<std::vector<Row>>(const Row* last)>;
  explicit Pages(Fetch fetch) : fetch_(std::move(fetch)) {}

  // One page alone.
  absl::StatusOr<std::vector<Row>> page(const Row* last) const { return fetch_(last); }

  // The next row; null: there is none.
  absl::StatusOr<const Row*> next() {
    if (rows_.empty() && !ended_) {
      auto page = fetch_(last_ ? &*last_ : nullptr);
      if (!page.ok()) return page.status();
      ended_ = page->empty();
      if (!ended_) last_ = page->back();
      for (Row& row : *page) rows_.push_back(std::move(row));
    }
    return rows_.empty() ? nullptr : &rows_.front();
  }
  Row take() {
    Row row = std::move(rows_.front());
    rows_.pop_front();
    return row;
  }

 private:
  const Fetch fetch_;
  std::deque<Row> rows_;
  std::optional<Row> last_;
  bool ended_ = false;
};

// The first `limit` rows of both. `compare(a, b)`: negative where a row of the first comes before one of the second, 0
// where they are one row, which `unite(a, b)` makes. `size`: what a row takes of `bytes_max`, of which one may be more.
template <typename Row, typename Compare, typename Unite, typename Size>
absl::StatusOr<std::vector<Row>> merge(Pages<Row> first, Pages<Row> second, int limit, std::size_t bytes_max,
                                       const Compare& compare, const Unite& unite, const Size& size) {
  std::vector<Row> merged;
  std::size_t bytes = 0;
  while (merged.size() < static_cast<std::size_t>(limit)) {
    const auto a = first.next(), b = second.next();
    if (!a.ok()) return a.status();
    if (!b.ok()) return b.status();
    if (*a == nullptr && *b == nullptr) break;
    const int order = *b == nullptr ? -1 : *a == nullptr ? 1 : compare(**a, **b);
    bytes += size(order <= 0 ? **a : **b) + 8;  // Tag and length in the answer.
    if (!merged.empty() && bytes > bytes_max) break;
    if (order < 0) {
      merged.push_back(first.take());
    } else if (order > 0) {
      merged.push_back(second.take());
    } else {
      merged.push_back(unite(first.take(), second.take()));
    }
  }
  return merged;
}

}  // namespace plumbline
