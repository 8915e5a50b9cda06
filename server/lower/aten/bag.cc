// Bags of embeddings: rows of a table added up, averaged or compared, bag by bag (ATen: native/EmbeddingBag.cpp).
#include "server/lower/aten/bag.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "server/lower/aten/rows.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

enum Mode : std::int64_t { kSum = 0, kMean = 1, kMax = 2 };
// The largest of each bag is found by looking at every word for every bag, which takes no more than so many cells.
constexpr std::int64_t kMaxCells = 1 << 24;

struct Bags {
  Expr words;   // [n] rows of the table.
  Expr bag;     // [n] the bag that a word is in; -1: none.
  Expr counts;  // [bags, 1]
};

Expr ones(Emitter& emitter, std::int64_t n) { return expand(emitter.constant(1, Format::kInt64), {n, 1}); }

// A word is in the last bag that begins at or before it.
Bags bags_of(Call& call, std::int64_t bags) {
  Emitter& emitter = call.emitter();
  const InIntegers integers(emitter);
  const Expr words = call.tensor("indices"), offsets = call.tensor("offsets");
  const std::int64_t n = words.count(), padding = call.integer("padding_idx", -1);
  if (words.rank() != 1 || offsets.rank() != 1 || n == 0 || bags == 0) call.unsupported("no words");
  const Expr begin = scatter_add(ones(emitter, offsets.count()), offsets, n + 1, Format::kInt64);
  Attributes down;
  down.dims = {0};
  const Expr begun = emitter.arithmetic(Primitive::kCumsum, {begin}, begin.shape(), down);
  Expr bag = reshape(narrow(begun, 0, 0, n), {n}) - 1.0;
  if (padding >= 0) bag = select(equal(words, static_cast<double>(padding)), emitter.constant(-1), bag);
  return {words, bag, scatter_add(ones(emitter, n), bag, bags, Format::kInt64)};
}

// What a mean is multiplied by, [bags, 1]; the count may have been held in the elements' format.
Expr share(const Bags& bags, Format format) {
  return 1.0 / cast(maximum(bags.counts, bags.counts.emitter->constant(1)), format);
}

// Rows of x [bags, d] by bag, any of them for words that are in none.
Expr by_word(Expr x, const Bags& bags) {
  const InIntegers integers(*x.emitter);
  return gather_rows(x, maximum(bags.bag, x.emitter->constant(0)));
}

Expr weights_by_word(Call& call, std::int64_t n) { return reshape(call.tensor("per_sample_weights"), {n, 1}); }

// Row-major elements of the table: word [bags, d], the column its own.
Expr elements(Expr word) {
  const InIntegers integers(*word.emitter);
  const Expr at = iota(*word.emitter, {1, word.size(1)}, 0, 1, Format::kInt64);
  return reshape(word * static_cast<double>(word.size(1)) + at, {word.count()});
}

// The word with the largest element, for each bag and column: a choice.
void lower_largest(Call& call, Expr table, const Bags& bags) {
  Emitter& emitter = call.emitter();
  const std::int64_t n = bags.words.count(), count = bags.counts.size(0), width = table.size(1);
  if (n > kMaxCells / std::max<std::int64_t>(1, count * width)) call.unsupported("so many words, bags and columns");
  const Expr own =
      compare(Primitive::kEqual, reshape(bags.bag, {n, 1, 1}), iota(emitter, {1, count, 1}, 0, 1, Format::kInt64));
  const Expr nothing = emitter.constant(-std::numeric_limits<double>::infinity(), table.format());
  const Expr cells = select(own, reshape(gather_rows(table, bags.words), {n, 1, width}), nothing);
  const Expr tap = reduce(Primitive::kArgmax, cells, {0});
  emitter.graph().nodes[tap.id].result = Format::kInt64;
  const Expr some = bags.counts > 0.0, column = reshape(table, {table.count(), 1});
  const Expr words = gather_rows(reshape(bags.words, {n, 1}), reshape(tap, {tap.count()}));
  const Expr chosen = [&] {
    const InIntegers integers(emitter);
    return select(some, reshape(words, {count, width}), emitter.constant(0));
  }();
  const Expr position = elements(chosen);
  call.decides_index(chosen, {column, position, width, table.size(0)});
  const Expr largest = reshape(gather_rows(column, position), {count, width});
  call.returns(0, select(some, largest, emitter.constant(0, table.format())));
  if (call.wants(3)) call.returns(3, chosen);
}

void lower_embedding_bag(Call& call) {
  const Expr table = call.tensor("weight");
  const std::int64_t mode = call.integer("mode", kSum), count = call.result_shape().at(0);
  if (table.rank() != 2 || table.count() == 0) call.unsupported("shape of weight");
  const Bags bags = bags_of(call, count);
  if (mode == kMax) return lower_largest(call, table, bags);
  Expr rows = gather_rows(table, bags.words);
  if (call.has("per_sample_weights")) rows = rows * weights_by_word(call, rows.size(0));
  // Some loops multiply and add in the rows' own format.
  const Expr total = scatter_add(cast(rows, table.format()), bags.bag, count, table.format());
  call.returns(0, mode == kMean ? total * share(bags, table.format()) : total);
}

// [n, 1]: how often each word occurs among all.
Expr occurrences(const Expr& words, std::int64_t rows) {
  Emitter& emitter = *words.emitter;
  const InIntegers integers(emitter);
  return gather_rows(scatter_add(ones(emitter, words.count()), words, rows, Format::kInt64), words);
}

// What each word's row of the table gains, [n, d]: its bag's gradient times one factor, which is made in fp64 and held
// in the gradient's format.
Expr gains(Call& call, const Bags& bags, Expr dy, bool by_frequency) {
  Expr each = by_word(dy, bags);
  std::optional<Expr> factor;
  if (call.has("per_sample_weights")) factor = cast(weights_by_word(call, each.size(0)), Format::kFloat64);
  if (by_frequency) {
    const Expr count = cast(occurrences(bags.words, call.integer("num_weights", 0)), Format::kFloat64);
    factor = factor ? *factor / count : 1.0 / count;
  }
  if (call.integer("mode", kSum) == kMean) {
    const Expr part = by_word(share(bags, Format::kFloat64), bags);
    factor = factor ? *factor * part : part;
  }
  return factor ? each * cast(*factor, dy.format()) : each;
}

void lower_embedding_bag_backward(Call& call) {
  const Expr dy = call.tensor("grad");
  const std::int64_t rows = call.integer("num_weights", 0);
  const Bags bags = bags_of(call, dy.size(0));
  const Format own = dy.format();
  if (call.integer("mode", kSum) == kMax) {
    const Expr chosen = call.tensor("maximum_indices");
    Expr position = elements(chosen);
    {
      const InIntegers integers(call.emitter());
      const Expr empty = reshape(expand(equal(bags.counts, 0), chosen.shape()), {chosen.count()});
      position = select(empty, call.emitter().constant(-1), position);
    }
    const Expr added = scatter_add(reshape(dy, {dy.count(), 1}), position, rows * dy.size(1), own);
    call.returns(reshape(added, {rows, dy.size(1)}));
    return;
  }
  const Expr each = gains(call, bags, dy, call.boolean("scale_grad_by_freq", false));
  const InIntegers integers(call.emitter());
  const Expr word = select(bags.bag < 0.0, call.emitter().constant(-1), bags.words);
  call.returns(scatter_add(cast(each, own), word, rows, own));
}

// The product of a word's row with its bag's gradient.
void lower_per_sample_weights_backward(Call& call) {
  const Expr dy = call.tensor("grad"), table = call.tensor("weight");
  const Bags bags = bags_of(call, dy.size(0));
  const Expr product = by_word(dy, bags) * gather_rows(table, bags.words);
  const Expr total = reshape(sum(product, last_dim(product)), {product.size(0)});
  call.returns(select(bags.bag < 0.0, call.emitter().constant(0), total));
}

}  // namespace

void lower_sparse_bag_backward(Call& call) {
  const Expr dy = call.tensor("grad");
  const std::int64_t entries = call.result_shape(0).back();
  if (call.integer("mode", kSum) == kMax || call.boolean("scale_grad_by_freq", false)) call.unsupported("its mode");
  const Bags bags = bags_of(call, dy.size(0));
  const Expr each = cast(gains(call, bags, dy, false), dy.format());
  const InIntegers integers(call.emitter());
  const Expr kept = narrow(ascending(cast(bags.bag < 0.0, Format::kInt64)), 0, 0, entries);
  const std::int64_t n = bags.words.count();
  call.returns(0, reshape(gather_rows(reshape(bags.words, {n, 1}), kept), {1, entries}));
  call.returns(1, gather_rows(each, kept));
}

std::span<const Rule> bag_rules() {
  constexpr auto kIndex = DecisionKind::kLastIndex;
  static const Rule kRules[] = {
      {"_embedding_bag", {"default"}, lower_embedding_bag, kFunctional, kIndex},
      {"_embedding_bag_forward_only", {"default"}, lower_embedding_bag, kFunctional, kIndex},
      {"_embedding_bag_backward", {"default"}, lower_embedding_bag_backward},
      {"_embedding_bag_per_sample_weights_backward", {"default"}, lower_per_sample_weights_backward},
  };
  return kRules;
}

}  // namespace plumbline
