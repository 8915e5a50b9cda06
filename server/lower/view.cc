#include "server/lower/view.h"

#include <algorithm>

namespace plumbline {
namespace {

// Drops dimensions of one step and joins neighbours that advance both spaces like one longer dimension; sorts by the
// addressed stride, largest first.
std::vector<LayoutDimension> simplify(const std::vector<LayoutDimension>& dimensions) {
  std::vector<LayoutDimension> joined;
  for (const LayoutDimension& d : dimensions) {
    if (d.size == 1) continue;
    if (!joined.empty()) {
      LayoutDimension& last = joined.back();
      if (last.from == d.size * d.from && last.to == d.size * d.to) {
        last = {last.size * d.size, d.from, d.to};
        continue;
      }
    }
    joined.push_back(d);
  }
  std::stable_sort(joined.begin(), joined.end(),
                   [](const LayoutDimension& a, const LayoutDimension& b) { return a.from > b.from; });
  return joined;
}

// Whether every address has at most one set of digits: each stride exceeds what the smaller ones reach together.
bool unambiguous(const std::vector<LayoutDimension>& dimensions) {
  std::int64_t reach = 0;
  for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d) {
    if (d->from <= reach) return false;
    reach += (d->size - 1) * d->from;
  }
  return true;
}

// One past the largest residue modulo `row` that the window reads, where its elements lie in rows of that length
// without reaching from one into the next; nothing: they do not.
std::optional<std::int64_t> end_in_row(const View& view, std::int64_t row) {
  std::int64_t end = view.offset % row + 1;
  for (std::size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] > 1 && view.strides[d] % row != 0) end += (view.sizes[d] - 1) * view.strides[d];
  return end <= row ? std::optional(end) : std::nullopt;
}

bool apart_in_rows(const View& a, const View& b, std::int64_t row) {
  const auto a_end = end_in_row(a, row), b_end = end_in_row(b, row);
  return a_end && b_end && (*a_end <= b.offset % row || *b_end <= a.offset % row);
}

}  // namespace

View row_major_view(const Shape& shape) { return canonical({shape, row_major_strides(shape), 0}); }

View canonical(View view) {
  view.strides.resize(view.sizes.size());
  for (std::size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] <= 1) view.strides[d] = 0;
  return view;
}

std::optional<std::int64_t> extent(const View& view) {
  if (view.offset < 0 || view.sizes.size() != view.strides.size()) return std::nullopt;
  std::int64_t last = view.offset;
  bool empty = false;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    if (view.sizes[d] < 0 || view.strides[d] < 0) return std::nullopt;
    if (view.sizes[d] == 0) {
      empty = true;
      continue;
    }
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(view.sizes[d] - 1, view.strides[d], &reach)) return std::nullopt;
    if (__builtin_add_overflow(last, reach, &last)) return std::nullopt;
  }
  if (empty) return 0;
  if (__builtin_add_overflow(last, 1, &last)) return std::nullopt;
  return last;
}

Layout layout_of_write(const View& written) {
  Layout layout;
  const Shape held = row_major_strides(written.sizes);
  for (std::size_t d = 0; d < written.sizes.size(); ++d)
    layout.dimensions.push_back({written.sizes[d], written.strides[d], held[d]});
  layout.from_offset = written.offset;
  return layout;
}

Layout layout_of_window(const View& window) {
  Layout layout;
  const Shape addressed = row_major_strides(window.sizes);
  for (std::size_t d = 0; d < window.sizes.size(); ++d)
    layout.dimensions.push_back({window.sizes[d], addressed[d], window.strides[d]});
  layout.to_offset = window.offset;
  return layout;
}

std::optional<View> compose(const Layout& layout, const View& wanted) {
  View result;
  result.sizes = wanted.sizes;
  result.strides.assign(wanted.sizes.size(), 0);
  if (count(wanted.sizes) == 0) return result;
  const std::vector<LayoutDimension> dimensions = simplify(layout.dimensions);
  for (const LayoutDimension& d : dimensions)
    if (d.size == 0) return std::nullopt;
  if (!unambiguous(dimensions)) return std::nullopt;

  // `used[i]`: how far the wanted elements reach along dimension i.
  std::vector<std::int64_t> used(dimensions.size(), 0);
  // Splits `distance` into digits, adds `times` of each to `used`, and returns the distance in the holding space.
  auto translate = [&](std::int64_t distance, std::int64_t times) -> std::optional<std::int64_t> {
    std::int64_t moved = 0;
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      const std::int64_t digit = distance / dimensions[i].from;
      distance -= digit * dimensions[i].from;
      if (digit == 0) continue;
      if (digit >= dimensions[i].size) return std::nullopt;
      used[i] += digit * times;
      if (used[i] >= dimensions[i].size) return std::nullopt;
      moved += digit * dimensions[i].to;
    }
    if (distance != 0) return std::nullopt;
    return moved;
  };

  if (wanted.offset < layout.from_offset) return std::nullopt;
  const auto offset = translate(wanted.offset - layout.from_offset, 1);
  if (!offset) return std::nullopt;
  result.offset = layout.to_offset + *offset;
  for (std::size_t d = 0; d < wanted.sizes.size(); ++d) {
    if (wanted.sizes[d] <= 1 || wanted.strides[d] == 0) continue;
    const auto stride = translate(wanted.strides[d], wanted.sizes[d] - 1);
    if (!stride) return std::nullopt;
    result.strides[d] = *stride;
  }
  return result;
}

WriteIndex::WriteIndex(const View& written) : offset_(written.offset) {
  const Layout layout = layout_of_write(written);
  dimensions_ = simplify(layout.dimensions);
  ambiguous_ = !unambiguous(dimensions_);
}

std::optional<std::int64_t> WriteIndex::find(std::int64_t address) const {
  std::int64_t left = address - offset_, held = 0;
  if (left < 0) return std::nullopt;
  for (const LayoutDimension& d : dimensions_) {
    const std::int64_t digit = left / d.from;
    if (digit >= d.size) return std::nullopt;
    left -= digit * d.from;
    held += digit * d.to;
  }
  return left == 0 ? std::optional(held) : std::nullopt;
}

bool apart(const View& a, const View& b) {
  const auto a_end = extent(a), b_end = extent(b);
  if (!a_end || !b_end) return false;
  if (*a_end <= b.offset || *b_end <= a.offset) return true;
  for (const View* view : {&a, &b})
    for (std::size_t d = 0; d < view->sizes.size(); ++d)
      if (view->sizes[d] > 1 && view->strides[d] > 1 && apart_in_rows(a, b, view->strides[d])) return true;
  return false;
}

std::optional<View> storage_order(const View& written, std::int64_t elements) {
  if (written.offset != 0 || count(written.sizes) != elements) return std::nullopt;
  View order;
  if (elements == 0) return View{{0}, {0}, 0};
  const std::vector<LayoutDimension> dimensions = simplify(layout_of_write(written).dimensions);
  std::int64_t expected = elements;
  for (const LayoutDimension& d : dimensions) {
    expected /= d.size;
    if (d.from != expected) return std::nullopt;
    order.sizes.push_back(d.size);
    order.strides.push_back(d.to);
  }
  return order;
}

}  // namespace plumbline
