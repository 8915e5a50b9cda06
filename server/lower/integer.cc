#include "server/lower/integer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/lower/spatial.h"

namespace plumbline {
namespace {

constexpr double kWord = 0x1p32;
constexpr double kDigit = 0x1p16;
constexpr std::int64_t kBitwiseElementsMax = 1 << 22;

IntegerRange range(Expr x) { return x.emitter->ranges().of(x.id); }

// x, of which the caller knows the limits.
Expr limited(Expr x, double low, double high) {
  x.emitter->ranges().set(x.id, {low, high});
  return x;
}

[[noreturn]] void beyond() { throw Unsupported("integers beyond 2^53"); }

// x modulo a power of two, in [0, modulus).
Expr modulo(Expr x, double modulus) {
  if (range(x).within(0, modulus - 1)) return x;
  return limited(x - modulus * unary(Primitive::kFloor, x / modulus), 0, modulus - 1);
}
Expr quotient(Expr x, double divisor) { return unary(Primitive::kFloor, x / divisor); }

// x modulo the power of two that a format wraps at, as the format's number.
Expr brought_back(Expr x, Format format) {
  const IntegerRange held = range_of(format);
  if (range(x).within(held.low, held.high)) return x;
  const double modulus = std::ldexp(1.0, width_of(format));
  return limited(x - modulus * quotient(x - held.low, modulus), held.low, held.high);
}

// The operands whose words a window, a choice, ... hands on: [first, last) of the node's inputs. Nothing: it does not.
std::optional<std::pair<std::size_t, std::size_t>> handed_on(const Node& node) {
  switch (node.primitive) {
    case Primitive::kSelect:
      return std::pair{std::size_t{1}, node.inputs.size()};
    case Primitive::kGatherRows:
      return std::pair{std::size_t{0}, std::size_t{1}};
    case Primitive::kWindow:
    case Primitive::kCast:
    case Primitive::kAssemble:
      return std::pair{std::size_t{0}, node.inputs.size()};
    default:
      return std::nullopt;
  }
}

Words words_of_exact(Expr x) { return {modulo(x, kWord).id, modulo(quotient(x, kWord), kWord).id}; }

// The words of a number of 64 bits, those of its window, choice, ... from the words of what it reads.
std::optional<Words> known_words(Expr x) {
  Emitter& emitter = *x.emitter;
  std::vector<NodeId> open{x.id};
  std::map<NodeId, std::optional<Words>> known{{x.id, std::nullopt}};
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (const Words* words = emitter.words(id)) {
      known[id] = *words;
    } else if (range({&emitter, id}).exact()) {
      known[id] = words_of_exact({&emitter, id});
    } else {
      const Node& node = emitter.node(id);
      const auto operands = handed_on(node);
      if (!operands) return std::nullopt;
      for (std::size_t i = operands->first; i < operands->second; ++i)
        if (known.emplace(node.inputs[i], std::nullopt).second) open.push_back(node.inputs[i]);
    }
  }
  for (auto& [id, words] : known) {  // In topological order.
    if (words) continue;
    const auto [first, last] = *handed_on(emitter.node(id));
    Node low = emitter.node(id), high = low;
    for (std::size_t i = first; i < last; ++i) {
      low.inputs[i] = known.at(emitter.node(id).inputs[i])->low;
      high.inputs[i] = known.at(emitter.node(id).inputs[i])->high;
    }
    words = Words{emitter.add(std::move(low)), emitter.add(std::move(high))};
  }
  return known.at(x.id);
}

}  // namespace

std::optional<Words> words_of(Expr x) {
  if (!range(x).exact()) return known_words(x);
  return words_of_exact(x);
}

namespace {

struct Pair {
  Expr low, high;
};

Pair pair_of(Expr x) {
  const auto words = words_of(x);
  if (!words) beyond();
  return {{x.emitter, words->low}, {x.emitter, words->high}};
}

Expr signed_high(Expr high) {
  return limited(select(high > kWord / 2 - 1, high - kWord, high), -kWord / 2, kWord / 2 - 1);
}

Expr number(Pair words) {
  const Expr made = signed_high(words.high) * kWord + words.low;
  made.emitter->set_words(made.id, {words.low.id, words.high.id});
  const IntegerRange all = range_of(Format::kInt64);
  return limited(made, all.low, all.high);
}

Pair sum_of(Pair a, Pair b) {
  const Expr low = a.low + b.low, carry = quotient(low, kWord);
  return {limited(low - kWord * carry, 0, kWord - 1), modulo(a.high + b.high + carry, kWord)};
}

Pair negated(Pair a) {
  const Expr borrow = select(not_equal(a.low, 0), a.low.emitter->constant(1), a.low.emitter->constant(0));
  return {modulo(-a.low, kWord), modulo(-a.high - borrow, kWord)};
}

std::vector<Expr> digits(Pair a) {
  std::vector<Expr> made;
  for (const Expr& word : {a.low, a.high}) {
    const Expr upper = limited(quotient(word, kDigit), 0, kDigit - 1);
    made.push_back(limited(word - kDigit * upper, 0, kDigit - 1));
    made.push_back(upper);
  }
  return made;
}

// Digits of 16 bits: a column's sum stays below 2^35.
Pair product_of(Pair a, Pair b) {
  const std::vector<Expr> x = digits(a), y = digits(b);
  std::vector<Expr> made;
  std::optional<Expr> carry;
  for (std::size_t k = 0; k < 4; ++k) {
    std::optional<Expr> column = carry;
    for (std::size_t i = 0; i <= k; ++i) column = column ? *column + x[i] * y[k - i] : x[i] * y[k - i];
    carry = quotient(*column, kDigit);
    made.push_back(limited(*column - kDigit * *carry, 0, kDigit - 1));
  }
  return {limited(made[0] + kDigit * made[1], 0, kWord - 1), limited(made[2] + kDigit * made[3], 0, kWord - 1)};
}

bool fits(IntegerRange r) { return r.exact() || r.assumed; }

// `plain` in fp64 where its operands' ranges allow that, otherwise `words`.
template <class Plain, class InWords>
Expr computed(Expr a, Expr b, Format format, Plain plain, InWords in_words) {
  const InIntegers integers(*a.emitter);
  const Expr direct = plain(a, b);
  if (fits(range(a)) && fits(range(b)) && fits(range(direct))) return brought_back(direct, format);
  if (width_of(format) == 64) return number(in_words(pair_of(a), pair_of(b)));
  // Products of 32 bits go beyond 2^53, their lower words do not.
  return brought_back(in_words(pair_of(a), pair_of(b)).low, format);
}

// The bits of a word, least first, along a new last dimension.
Expr bits_of(Expr word, std::int64_t width) {
  Emitter& emitter = *word.emitter;
  Shape shape = word.shape();
  shape.push_back(1);
  const Expr powers = binary(Primitive::kPow, emitter.constant(2), iota(emitter, {width}, 0, 1, Format::kInt64));
  const Expr above = unary(Primitive::kFloor, reshape(word, shape) / powers);
  return binary(Primitive::kFmod, above, emitter.constant(2));
}

Expr word_of_bits(Expr bits, std::int64_t width) {
  Emitter& emitter = *bits.emitter;
  const Expr powers = binary(Primitive::kPow, emitter.constant(2), iota(emitter, {width}, 0, 1, Format::kInt64));
  Shape shape = bits.shape();
  shape.pop_back();
  return limited(reshape(sum(bits * powers, last_dim(bits)), shape), 0, std::ldexp(1.0, static_cast<int>(width)) - 1);
}

Expr bitwise_word(Bits kind, Expr a, Expr b, std::int64_t width) {
  const Expr both = word_of_bits(bits_of(a, width) * bits_of(b, width), width);
  if (kind == Bits::kAnd) return both;
  const Expr made = kind == Bits::kOr ? a + b - both : a + b - 2.0 * both;
  return limited(made, 0, std::ldexp(1.0, static_cast<int>(width)) - 1);
}

}  // namespace

Expr wrapped(Expr x, Format format) {
  if (format == Format::kBool || is_float(x.format())) return x;
  const InIntegers integers(*x.emitter);
  const IntegerRange held = range_of(format), r = range(x);
  if (r.assumed || r.within(held.low, held.high)) return x;
  if (width_of(format) < 64) return brought_back(r.exact() ? x : pair_of(x).low, format);
  if (!known_words(x)) beyond();
  return x;
}

Expr whole_sum(Expr a, Expr b, Format format) {
  return computed(
      a, b, format, [](Expr x, Expr y) { return x + y; }, sum_of);
}
Expr whole_difference(Expr a, Expr b, Format format) {
  return computed(
      a, b, format, [](Expr x, Expr y) { return x - y; }, [](Pair x, Pair y) { return sum_of(x, negated(y)); });
}
Expr whole_product(Expr a, Expr b, Format format) {
  return computed(
      a, b, format, [](Expr x, Expr y) { return x * y; }, product_of);
}

Expr whole_total(Primitive primitive, Expr x, const std::vector<std::int64_t>& dims, Format format) {
  constexpr double kTermsMax = 0x1p20;  // So many words add up to less than 2^53.
  const InIntegers integers(*x.emitter);
  const auto total = [&](Expr terms) {
    if (primitive == Primitive::kSum) return sum(terms, dims);
    Attributes attributes;
    attributes.dims = dims;
    return terms.emitter->arithmetic(primitive, {terms}, terms.shape(), std::move(attributes));
  };
  const Expr direct = total(x);
  if ((fits(range(x)) && fits(range(direct))) || width_of(format) != 64 || dims.empty()) return direct;
  double terms = 1;
  for (const std::int64_t dim : dims) terms *= static_cast<double>(x.size(static_cast<std::size_t>(dim)));
  if (terms > kTermsMax) beyond();
  const Pair words = pair_of(x);
  const Expr low = total(words.low), carry = quotient(low, kWord);
  return number({limited(low - kWord * carry, 0, kWord - 1), modulo(total(words.high) + carry, kWord)});
}

Expr bitwise(Bits kind, Expr a, Expr b, Format format) {
  const InIntegers integers(*a.emitter);
  if (std::max(a.count(), b.count()) > kBitwiseElementsMax) throw Unsupported("bits of so many integers");
  const int width = width_of(format);
  if (width < 64) {
    const double modulus = std::ldexp(1.0, width);
    if (!range(a).exact() || !range(b).exact()) beyond();
    return brought_back(bitwise_word(kind, modulo(a, modulus), modulo(b, modulus), width), format);
  }
  const Pair x = pair_of(a), y = pair_of(b);
  return number({bitwise_word(kind, x.low, y.low, 32), bitwise_word(kind, x.high, y.high, 32)});
}

Expr bitwise_not(Expr x, Format format) {
  const InIntegers integers(*x.emitter);
  return format == Format::kUInt8 ? 255.0 - x : whole_difference(x.emitter->constant(-1), x, format);
}

Expr shifted_right(Expr x, int shift, Format format) {
  const InIntegers integers(*x.emitter);
  if (shift < 0 || shift >= width_of(format)) throw Unsupported("a shift by more bits than there are");
  if (shift == 0) return x;
  if (range(x).exact()) return quotient(x, std::ldexp(1.0, shift));
  const Pair words = pair_of(x);
  const Expr high = signed_high(words.high);
  if (shift >= 32) return quotient(high, std::ldexp(1.0, shift - 32));
  const double by = std::ldexp(1.0, shift);
  const Expr kept = quotient(high, by);
  const Expr low = quotient(words.low, by) + (high - by * kept) * (kWord / by);
  return number({limited(low, 0, kWord - 1), modulo(kept, kWord)});
}

Expr long_remainder(Expr x, double divisor) {
  constexpr double kDivisorMax = 0x1p37;  // Times a digit it is exact.
  if (!(divisor >= 1 && divisor <= kDivisorMax) || divisor != std::trunc(divisor))
    throw Unsupported("such a divisor of integers beyond 2^53");
  const InIntegers integers(*x.emitter);
  Emitter& emitter = *x.emitter;
  const Pair words = pair_of(x);
  const std::vector<Expr> parts = digits(words);
  const Expr by = emitter.constant(divisor);
  const auto rest = [&](Expr value) { return binary(Primitive::kFmod, value, by); };
  // The number is its words' less 2^64 where it is negative.
  double whole = 1;
  for (int i = 0; i < 4; ++i) whole = std::fmod(whole * kDigit, divisor);
  Expr remainder = rest(parts[3]);
  for (std::size_t i = 3; i-- > 0;) remainder = rest(remainder * kDigit + parts[i]);
  const Expr negative = words.high > kWord / 2 - 1;
  return rest(remainder + select(negative, emitter.constant(divisor - whole), emitter.constant(0)));
}

Expr long_compare(Primitive primitive, Expr a, Expr b) {
  using enum Primitive;
  const InIntegers integers(*a.emitter);
  const Pair x = pair_of(a), y = pair_of(b);
  const Expr same = compare(kEqual, x.high, y.high);
  if (primitive == kEqual || primitive == kNotEqual) {
    const Expr equal = logical_and(same, compare(kEqual, x.low, y.low));
    return primitive == kEqual ? equal : logical_not(equal);
  }
  // The lower words decide among equal upper ones.
  const Primitive strict = primitive == kLess || primitive == kLessEqual ? kLess : kGreater;
  const Expr upper = compare(strict, signed_high(x.high), signed_high(y.high));
  return logical_or(upper, logical_and(same, compare(primitive, x.low, y.low)));
}

Expr whole_constant(Emitter& emitter, std::int64_t value, Format format) {
  const auto nearest = static_cast<double>(value);
  if (std::fabs(nearest) <= kExactMax) return emitter.constant(nearest, format);
  Attributes attributes;
  attributes.scalar = nearest;  // A node of its own: others may be nearest to it too.
  const Expr made = emitter.movement(Primitive::kConstant, {}, {}, std::move(attributes), format);
  const auto bits = static_cast<std::uint64_t>(value);
  const Expr low = emitter.constant(static_cast<double>(bits & 0xffffffffU), Format::kInt64);
  const Expr high = emitter.constant(static_cast<double>(bits >> 32), Format::kInt64);
  emitter.set_words(made.id, {low.id, high.id});
  return made;
}

std::optional<Words> words_of_leaf(Emitter& emitter, const GraphLeaf& leaf) {
  if (leaf.format != Format::kInt64 || !leaf.bytes || emitter.ranges().of(leaf.node).exact()) return std::nullopt;
  const std::size_t elements = leaf.bytes->size() / sizeof(std::uint64_t);
  const Shape shape = emitter.node(leaf.node).shape;
  const GraphLeaf whole = leaf;
  const auto part = [&](int shift, const char* name) {
    auto bytes = std::make_shared<std::vector<std::uint8_t>>(whole.bytes->size());
    for (std::size_t i = 0; i < elements; ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, whole.bytes->data() + i * sizeof value, sizeof value);
      value = (value >> shift) & 0xffffffffU;
      std::memcpy(bytes->data() + i * sizeof value, &value, sizeof value);
    }
    const NodeId node = emitter.movement(Primitive::kLeaf, {}, shape, {}, Format::kInt64).id;
    emitter.graph().leaves.push_back({node, whole.role, whole.name + name, whole.anchor, Format::kInt64, bytes});
    return node;
  };
  const NodeId low = part(0, " (low word)");
  return Words{low, part(32, " (high word)")};
}

}  // namespace plumbline
