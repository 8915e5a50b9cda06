#include "server/lower/storage.h"

#include "server/lower/view.h"

namespace plumbline {

void Storage::define_flat(ValueId value, Expr node, std::int64_t elements) {
  Value made;
  made.node = node;
  made.count = elements;
  made.flat = true;
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
  made.flat = true;
  values_[value] = std::move(made);
}

const MissingResult* Storage::missing(const TensorRef& tensor) const {
  auto found = values_.find(tensor.value);
  if (found == values_.end()) return nullptr;
  if (found->second.missing) return &*found->second.missing;
  if (found->second.flat || !found->second.unknown.empty() || found->second.written == canonical(tensor.view) ||
      compose(layout_of_write(found->second.written), canonical(tensor.view)))
    return nullptr;
  while (!found->second.flat && !storage_order(found->second.written, found->second.count)) {
    found = values_.find(found->second.base);
    if (found == values_.end()) return nullptr;
    if (found->second.missing) return &*found->second.missing;
  }
  return nullptr;
}

std::vector<MissingResult> Storage::take_missing() {
  std::vector<MissingResult> taken;
  taken.swap(read_missing_);
  return taken;
}

Storage::Value Storage::find(ValueId value) {
  const auto found = values_.find(value);
  if (found == values_.end())
    throw TraceError("a leaf or an earlier result was expected, found value " + std::to_string(value));
  if (!found->second.unknown.empty()) throw Unsupported(found->second.unknown);
  Value known = found->second;
  if (known.missing) {
    read_missing_.push_back(*known.missing);
    known.node = emitter_.movement(Primitive::kLeaf, {}, {known.count}, {}, known.format);
  }
  return known;
}

Expr Storage::read(const TensorRef& tensor) {
  const Value value = find(tensor.value);
  const View view = canonical(tensor.view);
  const auto reach = extent(view);
  if (!reach || *reach > value.count)
    throw TraceError("a window within " + std::to_string(value.count) + " elements was expected, found sizes " +
                     to_string(view.sizes) + ", strides " + to_string(view.strides) + ", offset " +
                     std::to_string(view.offset));
  if (value.node.format() != tensor.format) throw Unsupported("a tensor that reinterprets the bits of its storage");
  if (value.flat) return emitter_.window(value.node, view);
  if (value.written == view) return value.node;
  if (const auto direct = compose(layout_of_write(value.written), view)) return emitter_.window(value.node, *direct);
  return emitter_.window(flat(tensor.value), view);
}

Expr Storage::flat(ValueId id) {
  const Value value = find(id);
  if (value.flat) return value.node;
  if (const auto order = storage_order(value.written, value.count)) return emitter_.window(value.node, *order);
  std::optional<Expr> base;
  if (value.base != 0) base = flat(value.base);
  const Expr whole = assemble(emitter_, {value.count}, base, {value.node}, {value.written}, value.node.format());
  return whole;
}

}  // namespace plumbline
