#include "server/lower/emit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "server/lower/infinite.h"
#include "server/lower/view.h"

namespace plumbline {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + "]";
}

Shape Expr::shape() const { return emitter->node(id).shape; }
std::int64_t Expr::size(std::size_t dim) const { return emitter->node(id).shape.at(dim); }
std::int64_t Expr::count() const { return plumbline::count(emitter->node(id).shape); }
std::size_t Expr::rank() const { return emitter->node(id).shape.size(); }
Format Expr::format() const { return emitter->node(id).result; }

void Emitter::begin(std::uint32_t origin, Format compute) {
  begin_ = static_cast<NodeId>(graph_.nodes.size());
  origin_ = origin;
  compute_ = compute;
  windows_since_begin_.clear();
  constants_.clear();
}

void Emitter::roll_back() {
  for (const WindowKey& key : windows_since_begin_) windows_.erase(key);
  windows_since_begin_.clear();
  constants_.clear();
  while (graph_.nodes.size() > begin_) {
    for (NodeId input : graph_.nodes.back().inputs) --readers_[input];
    graph_.nodes.pop_back();
    readers_.pop_back();
    infinite_.pop_back();
  }
  ranges_.forget(begin_);
  words_.erase(words_.lower_bound(begin_), words_.end());
}

const Words* Emitter::words(NodeId id) const {
  const auto found = words_.find(id);
  return found == words_.end() ? nullptr : &found->second;
}

NodeId Emitter::add(Node node) {
  node.origin = origin_;
  for (NodeId input : node.inputs) ++readers_[input];
  infinite_.push_back(may_stand_for_infinity(node, infinite_));
  graph_.nodes.push_back(std::move(node));
  readers_.push_back(0);
  return static_cast<NodeId>(graph_.nodes.size() - 1);
}

Expr Emitter::arithmetic(Primitive primitive, std::vector<Expr> inputs, Shape shape, Attributes attributes) {
  Node made;
  made.primitive = primitive;
  for (Expr input : inputs) {
    const Format format = input.format();
    const bool wider = is_float(format) && is_float(compute_) && traits(format).precision > traits(compute_).precision;
    const bool longer = is_integer(format) && is_float(compute_) && !holds_exactly(compute_, input.id);
    made.inputs.push_back(wider || longer ? cast(input, compute_).id : input.id);
  }
  made.attributes = std::move(attributes);
  made.shape = std::move(shape);
  made.result = made.compute = compute_;
  return {this, add(std::move(made))};
}

Expr Emitter::movement(Primitive primitive, std::vector<Expr> inputs, Shape shape, Attributes attributes,
                       Format format) {
  Node made;
  made.primitive = primitive;
  for (Expr input : inputs) made.inputs.push_back(input.id);
  made.attributes = std::move(attributes);
  made.shape = std::move(shape);
  made.result = made.compute = format;
  return {this, add(std::move(made))};
}

Expr Emitter::constant(double value, Format format) {
  const auto key = std::make_pair(std::bit_cast<std::uint64_t>(value), format);
  if (const auto known = constants_.find(key); known != constants_.end()) return {this, known->second};
  Attributes attributes;
  attributes.scalar = value;
  const Expr made = movement(Primitive::kConstant, {}, {}, std::move(attributes), format);
  constants_.emplace(key, made.id);
  return made;
}

Expr Emitter::inexact_constant(double value, double off, Format format) {
  Attributes attributes;
  attributes.scalar = value;
  attributes.scalar2 = off;
  return movement(Primitive::kConstant, {}, {}, std::move(attributes), format);
}

Expr Emitter::narrowed_constant(double value, double off) {
  Attributes attributes;
  attributes.scalar = value;
  attributes.scalar2 = off;
  attributes.size = 1;
  return movement(Primitive::kConstant, {}, {}, std::move(attributes), compute_);
}

Expr Emitter::contracted(Expr x) { return narrowed_factor(x, Format::kUnknown); }

Expr Emitter::narrowed_factor(Expr x, Format format) {
  Attributes attributes;
  attributes.scalar = 1;
  attributes.narrow = format;
  const Shape shape = x.shape();
  return arithmetic(Primitive::kMul, {x, constant(1)}, shape, std::move(attributes));
}

Expr Emitter::window(Expr x, const View& wanted) {
  View view = canonical(wanted);
  for (;;) {  // To what windows were taken of, as far as one window can say it.
    const Node& source = node(x.id);
    if (view == row_major_view(source.shape)) return x;
    const auto reach = extent(view);
    if (!reach || *reach > x.count())
      throw LowerError("window of sizes " + to_string(view.sizes) + ", strides " + to_string(view.strides) +
                       " and offset " + std::to_string(view.offset) + " does not lie in the " +
                       std::to_string(x.count()) + " elements of its source");
    if (source.primitive != Primitive::kWindow) break;
    const auto direct = compose(layout_of_window(source.attributes.view), view);
    if (!direct) break;
    view = canonical(*direct);
    x = {this, source.inputs[0]};
  }

  WindowKey key{x.id, view.sizes};
  key.second.insert(key.second.end(), view.strides.begin(), view.strides.end());
  key.second.push_back(view.offset);
  if (const auto known = windows_.find(key); known != windows_.end()) return {this, known->second};
  Attributes attributes;
  attributes.view = view;
  const Expr made = movement(Primitive::kWindow, {x}, view.sizes, std::move(attributes), x.format());
  windows_since_begin_.push_back(key);
  windows_.emplace(std::move(key), made.id);
  return made;
}

bool Emitter::holds_exactly(Format format, NodeId id) {
  const Node& source = node(id);
  if (source.primitive == Primitive::kConstant) {
    const double value = source.attributes.scalar;
    if (std::isnan(value) || round_to(format, value) == value) return true;
  }
  if (source.result == format) return true;
  if (is_integer(source.result)) {
    const double most = std::ldexp(1.0, is_float(format) ? traits(format).precision : 53);
    return ranges_.of(id).within(-most, most);
  }
  return traits(source.result).precision < traits(format).precision && format != Format::kFloat16;
}

bool Emitter::round_in_place(NodeId id, Format format) {
  Node& made = graph_.nodes[id];
  switch (made.primitive) {
    case Primitive::kLeaf:
    case Primitive::kAssemble:
    case Primitive::kGatherRows:
      return false;
    case Primitive::kWindow:  // Windows of windows are made within one operation's rule, of which each makes a few.
      if (!free_to_change(made.inputs[0], 1) || !round_in_place(made.inputs[0], format)) return false;
      made.result = made.compute = format;
      return true;
    default:
      break;
  }
  if (!is_float(format) || !is_float(made.compute)) return false;
  // What copies one of its inputs rounds nothing: a cast of its own does, where one is needed.
  if (traits(made.primitive).bitwise && made.primitive != Primitive::kCast) {
    const auto held = [&](NodeId input) { return holds_exactly(format, input); };
    if (!std::all_of(made.inputs.begin(), made.inputs.end(), held)) return false;
    made.compute = format;
  }
  made.result = format;
  return true;
}

Expr Emitter::rounded(Expr x, Format format) {
  if (x.format() == format) return x;
  if (free_to_change(x.id, 0) && round_in_place(x.id, format)) return x;
  return cast(x, format);
}

Format compute_format(Format format) {
  return is_float(format) && traits(format).bytes < 4 ? Format::kFloat32 : format;
}

bool is_integer(Format format) { return format != Format::kUnknown && !is_float(format); }

Format promote(Format a, Format b) {
  if (a == b || b == Format::kUnknown) return a;
  if (a == Format::kUnknown) return b;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_float(a)) {
    if (a == Format::kFloat64 || b == Format::kFloat64) return Format::kFloat64;
    return Format::kFloat32;
  }
  if (a == Format::kBool) return b;
  if (b == Format::kBool) return a;
  if (traits(a).bytes == traits(b).bytes) return Format::kInt16;  // int8 with uint8
  return traits(a).bytes > traits(b).bytes ? a : b;
}

namespace {

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      throw LowerError("shapes that broadcast were expected, found " + to_string(a) + " and " + to_string(b));
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

std::size_t checked_dim(const Expr& x, std::int64_t dim) {
  const auto rank = static_cast<std::int64_t>(x.rank());
  if (dim < 0 || dim >= rank)
    throw LowerError("a dimension below " + std::to_string(rank) + " was expected, found " + std::to_string(dim));
  return static_cast<std::size_t>(dim);
}

}  // namespace

Expr binary(Primitive primitive, Expr a, Expr b) {
  return a.emitter->arithmetic(primitive, {a, b}, broadcast_shape(a.shape(), b.shape()));
}

Expr unary(Primitive primitive, Expr x) { return x.emitter->arithmetic(primitive, {x}, x.shape()); }

namespace {

// The second term may stand for infinity.
Expr absorbing(Primitive primitive, Expr a, Expr b) {
  Attributes attributes;
  attributes.scalar = 1;
  return a.emitter->arithmetic(primitive, {a, b}, broadcast_shape(a.shape(), b.shape()), attributes);
}

// Where a number that Python gave is no number of the kernel's format, the sum rounds it.
bool absorbs(Expr b) { return b.emitter->infinite(b) && b.emitter->holds_exactly(b.emitter->compute(), b.id); }

}  // namespace

Expr operator+(Expr a, Expr b) {
  if (absorbs(b)) return absorbing(Primitive::kAdd, a, b);
  if (absorbs(a)) return absorbing(Primitive::kAdd, b, a);
  return binary(Primitive::kAdd, a, b);
}
Expr operator-(Expr a, Expr b) {
  if (absorbs(b)) return absorbing(Primitive::kSub, a, b);
  if (absorbs(a)) return absorbing(Primitive::kAdd, -b, a);
  return binary(Primitive::kSub, a, b);
}
Expr operator*(Expr a, Expr b) { return binary(Primitive::kMul, a, b); }
// By a number for all elements it is marked so, whatever gave the number.
Expr operator/(Expr a, Expr b) {
  Attributes attributes;
  attributes.scalar = b.rank() == 0 ? 1 : 0;
  return a.emitter->arithmetic(Primitive::kDiv, {a, b}, broadcast_shape(a.shape(), b.shape()), attributes);
}
Expr operator+(Expr a, double b) { return a + a.emitter->constant(b); }
Expr operator-(Expr a, double b) { return a - a.emitter->constant(b); }
Expr operator*(Expr a, double b) { return a * a.emitter->constant(b); }
Expr operator/(Expr a, double b) { return a / a.emitter->constant(b); }
Expr operator+(double a, Expr b) { return b.emitter->constant(a) + b; }
Expr operator-(double a, Expr b) { return b.emitter->constant(a) - b; }
Expr operator*(double a, Expr b) { return b.emitter->constant(a) * b; }
Expr operator/(double a, Expr b) { return b.emitter->constant(a) / b; }
Expr operator-(Expr x) { return unary(Primitive::kNeg, x); }
Expr exp(Expr x) { return unary(Primitive::kExp, x); }
Expr log(Expr x) { return unary(Primitive::kLog, x); }
Expr log1p(Expr x) { return unary(Primitive::kLog1p, x); }
Expr sqrt(Expr x) { return unary(Primitive::kSqrt, x); }
Expr tanh(Expr x) { return unary(Primitive::kTanh, x); }
Expr erf(Expr x) { return unary(Primitive::kErf, x); }
Expr sigmoid(Expr x) { return unary(Primitive::kSigmoid, x); }
Expr abs(Expr x) { return unary(Primitive::kAbs, x); }
Expr square(Expr x) { return x * x; }
Expr maximum(Expr a, Expr b) { return binary(Primitive::kMax, a, b); }
Expr minimum(Expr a, Expr b) { return binary(Primitive::kMin, a, b); }

Expr compare(Primitive primitive, Expr a, Expr b) {
  const Expr made = binary(primitive, a, b);
  a.emitter->graph().nodes[made.id].result = Format::kBool;
  return made;
}

Expr operator>(Expr a, double b) { return compare(Primitive::kGreater, a, a.emitter->constant(b)); }
Expr operator<(Expr a, double b) { return compare(Primitive::kLess, a, a.emitter->constant(b)); }
Expr equal(Expr a, double b) { return compare(Primitive::kEqual, a, a.emitter->constant(b)); }
Expr not_equal(Expr a, double b) { return compare(Primitive::kNotEqual, a, a.emitter->constant(b)); }

Expr logical_not(Expr x) {
  const Expr made = unary(Primitive::kLogicalNot, x);
  x.emitter->graph().nodes[made.id].result = Format::kBool;
  return made;
}

Expr logical_and(Expr a, Expr b) { return compare(Primitive::kLogicalAnd, a, b); }
Expr logical_or(Expr a, Expr b) { return compare(Primitive::kLogicalOr, a, b); }

Expr select(Expr condition, Expr a, Expr b) {
  return a.emitter->arithmetic(Primitive::kSelect, {condition, a, b},
                               broadcast_shape(condition.shape(), broadcast_shape(a.shape(), b.shape())));
}

Expr cast(Expr x, Format format) {
  if (x.format() == format) return x;
  Node made;
  made.primitive = Primitive::kCast;
  made.inputs = {x.id};
  made.shape = x.shape();
  made.result = format;
  // A narrowing cast is one rounding of the held value; a widening one is exact, and so is one of an integer that the
  // format holds.
  made.compute = is_float(x.format()) ? x.format() : x.emitter->holds_exactly(format, x.id) ? format : Format::kFloat64;
  return {x.emitter, x.emitter->add(std::move(made))};
}

Expr converted(Expr x, Format format) {
  if (format == Format::kBool && x.format() != Format::kBool) return not_equal(x, 0);
  if (is_integer(format) && is_float(x.format())) {
    const Expr whole = unary(Primitive::kTrunc, x);
    if (format != Format::kInt64 && format != Format::kInt32) return cast(whole, format);
    // Processors convert what the format cannot hold, infinities and NaN included, to its least number.
    const double limit = format == Format::kInt64 ? 0x1p63 : 0x1p31;
    return cast(select(abs(whole) < limit, whole, x.emitter->constant(-limit)), format);
  }
  if (is_float(format) && !traits(format).infinities) {  // Saturates: mathematics, not rounding.
    const double largest = largest_finite(format);
    x = minimum(maximum(x, x.emitter->constant(-largest)), x.emitter->constant(largest));
  }
  return cast(x, format);
}

Expr held(Expr (*f)(Expr), Expr x) {
  const Format own = x.emitter->compute();
  const ComputeIn wide(*x.emitter, compute_format(own));
  return cast(f(x), own);
}

Expr reduce(Primitive primitive, Expr x, const std::vector<std::int64_t>& dims, double scalar) {
  Attributes attributes;
  attributes.scalar = scalar;
  attributes.dims = dims;
  Shape shape = x.shape();
  for (std::int64_t dim : dims) shape[checked_dim(x, dim)] = 1;
  return x.emitter->arithmetic(primitive, {x}, std::move(shape), std::move(attributes));
}

Expr sum(Expr x, const std::vector<std::int64_t>& dims) {
  return dims.empty() ? cast(x, x.emitter->compute()) : reduce(Primitive::kSum, x, dims);
}

// The error obeys e_k = e_(k-1) (1 - 1/k) + 3 u |x_k - m_(k-1)| / k + u |m_k| with k |m_k| <= sum |x|, so that n e_n is
// at most (n + 3 (2 + ln n)) u sum |x|: |m_k| <= sum |x| / k adds up to (1 + ln n) sum |x|. Means of parts that are
// merged take fewer roundings.
Expr running_mean(Expr x, const std::vector<std::int64_t>& dims, double n) {
  if (dims.empty()) return sum(x, dims) / n;
  const Expr total = reduce(Primitive::kSum, x, dims, 1);
  total.emitter->graph().nodes[total.id].attributes.size = static_cast<std::int64_t>(n + 7 + 3 * std::log(n + 1));
  return total / n;
}

Expr narrowed_sum(Expr x, const std::vector<std::int64_t>& dims, Format narrow, int times) {
  const Expr total = sum(x, dims);
  if (dims.empty()) return total;
  Attributes& attributes = total.emitter->graph().nodes[total.id].attributes;
  attributes.narrow = narrow;
  attributes.scalar2 = times;
  return total;
}

Expr amax(Expr x, const std::vector<std::int64_t>& dims) {
  return dims.empty() ? x : reduce(Primitive::kAmax, x, dims);
}

std::vector<std::int64_t> all_dims(const Expr& x) {
  std::vector<std::int64_t> dims(x.rank());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

std::vector<std::int64_t> last_dim(const Expr& x) {
  if (x.rank() == 0) return {};
  return {static_cast<std::int64_t>(x.rank()) - 1};
}

Expr matmul(Expr a, Expr b, std::optional<Expr> c, std::optional<Expr> alpha) {
  const Shape left = a.shape(), right = b.shape();
  if (left.size() < 2 || right.size() < 2 || left.back() != right[right.size() - 2])
    throw LowerError("matrices [..., m, k] and [..., k, n] were expected, found " + to_string(left) + " and " +
                     to_string(right));
  Shape shape = broadcast_shape({left.begin(), left.end() - 2}, {right.begin(), right.end() - 2});
  shape.push_back(left[left.size() - 2]);
  shape.push_back(right.back());
  std::vector<Expr> inputs{a, b};
  if (c || alpha) inputs.push_back(expand(c ? *c : a.emitter->constant(0), shape));
  if (alpha) inputs.push_back(*alpha);
  return a.emitter->arithmetic(Primitive::kMatmul, std::move(inputs), std::move(shape));
}

Expr reshape(Expr x, const Shape& shape) {
  if (count(shape) != x.count())
    throw LowerError(std::to_string(count(shape)) + " elements were expected for shape " + to_string(shape) +
                     ", found shape " + to_string(x.shape()));
  return x.emitter->window(x, row_major_view(shape));
}

Expr expand(Expr x, const Shape& shape) {
  const Shape from = x.shape();
  if (from == shape) return x;
  if (broadcast_shape(from, shape) != shape)
    throw LowerError("a shape that expands to " + to_string(shape) + " was expected, found " + to_string(from));
  View view{shape, Shape(shape.size(), 0), 0};
  const Shape strides = row_major_strides(from);
  const std::size_t lead = shape.size() - from.size();
  for (std::size_t d = 0; d < from.size(); ++d)
    if (from[d] != 1) view.strides[lead + d] = strides[d];
  return x.emitter->window(x, view);
}

Expr permute(Expr x, const std::vector<std::size_t>& order) {
  const Shape from = x.shape(), strides = row_major_strides(from);
  View view;
  for (std::size_t d : order) {
    view.sizes.push_back(from.at(d));
    view.strides.push_back(strides.at(d));
  }
  return x.emitter->window(x, view);
}

Expr exchanged(Expr x, std::size_t a, std::size_t b) {
  std::vector<std::size_t> order(x.rank());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order.at(a), order.at(b));
  return permute(x, order);
}

Expr transposed(Expr x) {
  if (x.rank() < 2) throw LowerError("at least two dimensions were expected, found shape " + to_string(x.shape()));
  return exchanged(x, x.rank() - 2, x.rank() - 1);
}

Expr narrow(Expr x, std::size_t dim, std::int64_t start, std::int64_t length) {
  View view{x.shape(), row_major_strides(x.shape()), 0};
  if (start < 0 || length < 0 || length > view.sizes.at(dim) - start)
    throw LowerError("a range within " + std::to_string(view.sizes[dim]) + " was expected, found " +
                     std::to_string(start) + " + " + std::to_string(length));
  view.offset = start * view.strides[dim];
  view.sizes[dim] = length;
  return x.emitter->window(x, view);
}

Expr assemble(Emitter& emitter, const Shape& shape, std::optional<Expr> base, const std::vector<Expr>& pieces,
              std::vector<View> views, Format format) {
  Attributes attributes;
  attributes.size = count(shape);
  attributes.has_base = base.has_value();
  std::vector<Expr> inputs;
  if (base) inputs.push_back(reshape(*base, {attributes.size}));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto reach = extent(views[i]);
    if (views[i].sizes != pieces[i].shape() || !reach || *reach > attributes.size)
      throw LowerError("a piece of shape " + to_string(views[i].sizes) + " within " + to_string(shape) +
                       " was expected, found shape " + to_string(pieces[i].shape()));
    inputs.push_back(pieces[i]);
    attributes.views.push_back(canonical(views[i]));
  }
  const Shape flat{attributes.size};
  return reshape(emitter.movement(Primitive::kAssemble, std::move(inputs), flat, std::move(attributes), format), shape);
}

Expr iota(Emitter& emitter, const Shape& shape, double start, double step, Format format) {
  Attributes attributes;
  attributes.scalar = start;
  attributes.scalar2 = step;
  return emitter.movement(Primitive::kIota, {}, shape, std::move(attributes), format);
}

Expr gather_rows(Expr table, Expr index) {
  if (table.rank() != 2 || index.rank() != 1)
    throw LowerError("a table [r, d] and an index [n] were expected, found " + to_string(table.shape()) + " and " +
                     to_string(index.shape()));
  return table.emitter->movement(Primitive::kGatherRows, {table, index}, {index.size(0), table.size(1)}, {},
                                 table.format());
}

Expr scatter_add(Expr source, Expr index, std::int64_t rows, Format format) {
  if (source.rank() != 2 || index.rank() != 1 || source.size(0) != index.size(0))
    throw LowerError("a source [n, d] and an index [n] were expected, found " + to_string(source.shape()) + " and " +
                     to_string(index.shape()));
  Attributes attributes;
  attributes.size = rows;
  return source.emitter->movement(Primitive::kScatterAdd, {source, index}, {rows, source.size(1)},
                                  std::move(attributes), format);
}

}  // namespace plumbline
