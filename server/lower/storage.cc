#include "server/lower/storage.h"

#include <algorithm>
#include <cmath>

#include "server/lower/view.h"

namespace plumbline {
namespace {

constexpr std::size_t kPiecesMax = 256;  // A window is put together of no more.

// Writes that a read of a storage looks behind. To look is cheaper than to put the storage together by some factor; a
// read of one element at a time, each older than the last, then costs both alike.
std::int64_t writes_passed_max(std::int64_t elements) {
  constexpr double kFactor = 16;
  return 64 + static_cast<std::int64_t>(std::sqrt(kFactor * static_cast<double>(elements)));
}

// Elements of a window that come from one node, every `source_stride`-th of it to every `stride`-th of the window.
struct Piece {
  Expr node;
  std::int64_t first = 0, stride = 1, source = 0, source_stride = 1, length = 0;

  // Takes the element if it continues the piece.
  bool take(std::int64_t position, std::int64_t from) {
    if (length == 1) {
      if (from < source) return false;
      stride = position - first;
      source_stride = from - source;
    }
    if (position != first + length * stride || from != source + length * source_stride) return false;
    ++length;
    return true;
  }
};

}  // namespace

void Storage::define_flat(ValueId value, Expr node, std::int64_t elements) {
  Value made;
  made.node = node;
  made.count = elements;
  made.whole = node;
  values_[value] = std::move(made);
}

void Storage::define(ValueId value, Expr node, const View& written, std::int64_t elements, ValueId base) {
  const auto reach = extent(written);
  if (!reach || *reach > elements || written.sizes != node.shape())
    throw LowerError("a result of shape " + to_string(node.shape()) + " within " + std::to_string(elements) +
                     " elements was expected, found sizes " + to_string(written.sizes) + ", strides " +
                     to_string(written.strides) + ", offset " + std::to_string(written.offset));
  Value made;
  made.node = node;
  made.written = canonical(written);
  made.count = elements;
  made.base = base;
  if (const auto below = values_.find(base); below != values_.end() && !storage_order(*made.written, elements))
    made.missing_below = below->second.missing ? base : below->second.missing_below;
  values_[value] = std::move(made);
}

void Storage::define_unknown(ValueId value, std::string reason) {
  Value made;
  made.unknown = std::move(reason);
  values_[value] = std::move(made);
}

void Storage::define_missing(ValueId value, Format format, std::int64_t elements, MissingResult result) {
  Value made;
  made.missing = std::move(result);
  made.format = format;
  made.count = elements;
  values_[value] = std::move(made);
}

const MissingResult* Storage::missing(const TensorRef& tensor) const {
  const auto found = values_.find(tensor.value);
  if (found == values_.end()) return nullptr;
  const Value& value = found->second;
  if (value.missing) return &*value.missing;
  if (value.missing_below == 0 || *value.written == canonical(tensor.view) ||
      compose(layout_of_write(*value.written), canonical(tensor.view)))
    return nullptr;
  return &*values_.at(value.missing_below).missing;
}

std::vector<MissingResult> Storage::take_missing() {
  std::vector<MissingResult> taken;
  taken.swap(read_missing_);
  return taken;
}

void Storage::roll_back() {
  while (!put_together_.empty()) {
    Value& value = values_.at(put_together_.back());
    if (!emitter_.fresh(value.whole->id)) return;
    value.whole.reset();
    put_together_.pop_back();
  }
}

const Storage::Value& Storage::find(ValueId value) const {
  const auto found = values_.find(value);
  if (found == values_.end())
    throw TraceError("a leaf or an earlier result was expected, found value " + std::to_string(value));
  if (!found->second.unknown.empty()) throw Unsupported(found->second.unknown);
  return found->second;
}

std::optional<Expr> Storage::known_whole(const Value& value) {
  if (value.missing) {
    read_missing_.push_back(*value.missing);
    return emitter_.movement(Primitive::kLeaf, {}, {value.count}, {}, value.format);
  }
  if (value.whole) return value.whole;
  if (const auto order = storage_order(*value.written, value.count)) return emitter_.window(value.node, *order);
  return std::nullopt;
}

Expr Storage::read(const TensorRef& tensor) {
  const Value& newest = find(tensor.value);
  const View view = canonical(tensor.view);
  const auto reach = extent(view);
  if (!reach || *reach > newest.count)
    throw TraceError("a window within " + std::to_string(newest.count) + " elements was expected, found sizes " +
                     to_string(view.sizes) + ", strides " + to_string(view.strides) + ", offset " +
                     std::to_string(view.offset));
  const Format format = newest.missing ? newest.format : newest.node.format();
  if (format != tensor.format) throw Unsupported("a tensor that reinterprets the bits of its storage");
  const Value* value = &newest;
  for (std::int64_t left = writes_passed_max(newest.count); left > 0; --left) {
    const bool behind = value->written && value->base != 0 && apart(*value->written, view);
    if (value->written && !behind) {
      if (*value->written == view) return value->node;
      if (const auto direct = compose(layout_of_write(*value->written), view))
        return emitter_.window(value->node, *direct);
    }
    if (const auto all = known_whole(*value)) return emitter_.window(*all, view);
    if (!behind) {
      if (const auto put_together = pieced(newest, view)) return *put_together;
      break;
    }
    value = &find(value->base);
  }
  return emitter_.window(whole(tensor.value), view);
}

std::optional<Expr> Storage::pieced(const Value& newest, const View& view) {
  struct Element {
    std::int64_t position = 0, address = 0;
  };
  const std::int64_t elements = count(view.sizes);
  if (elements > newest.count / 2) return std::nullopt;
  std::vector<Element> open;
  open.reserve(static_cast<std::size_t>(elements));
  for_each_address(view, [&](std::int64_t address) {
    open.push_back({static_cast<std::int64_t>(open.size()), address});
  });
  std::vector<Piece> pieces;
  const auto take = [&](std::size_t first, Expr node, std::int64_t position, std::int64_t source) {
    if (pieces.size() > first && pieces.back().take(position, source)) return;
    pieces.push_back({node, position, 1, source, 1, 1});
  };
  std::int64_t writes = writes_passed_max(newest.count), steps = newest.count;
  for (const Value* value = &newest; !open.empty(); value = &find(value->base)) {
    const std::size_t first = pieces.size();
    if (const auto all = known_whole(*value)) {
      for (const Element& element : open) take(first, *all, element.position, element.address);
      open.clear();
    } else if (!apart(*value->written, view)) {
      const WriteIndex index(*value->written);
      steps -= static_cast<std::int64_t>(open.size());
      if (index.ambiguous() || steps < 0) return std::nullopt;
      std::erase_if(open, [&](const Element& element) {
        const auto source = index.find(element.address);
        if (source) take(first, value->node, element.position, *source);
        return source.has_value();
      });
    }
    if (pieces.size() > kPiecesMax || --writes < 0) return std::nullopt;
    if (value->base == 0) break;  // The others are zeros.
  }
  std::vector<Expr> nodes;
  std::vector<View> views;
  for (const Piece& piece : pieces) {
    nodes.push_back(emitter_.window(piece.node, {{piece.length}, {piece.source_stride}, piece.source}));
    views.push_back({{piece.length}, {piece.stride}, piece.first});
  }
  return assemble(emitter_, view.sizes, std::nullopt, nodes, views, newest.node.format());
}

Expr Storage::whole(ValueId id) {
  std::vector<const Value*> written;  // Newest first.
  std::optional<Expr> base;
  for (ValueId at = id; at != 0 && !base; at = written.back()->base) {
    const Value& value = find(at);
    base = known_whole(value);
    if (base) break;
    written.push_back(&value);
  }
  if (written.empty()) return *base;
  std::vector<Expr> nodes;
  std::vector<View> views;
  for (auto value = written.rbegin(); value != written.rend(); ++value) {
    nodes.push_back((*value)->node);
    views.push_back(*(*value)->written);
  }
  Value& newest = values_.at(id);
  newest.whole = assemble(emitter_, {newest.count}, base, nodes, views, newest.node.format());
  put_together_.push_back(id);
  return *newest.whole;
}

}  // namespace plumbline
