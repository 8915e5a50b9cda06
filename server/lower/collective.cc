// Collectives of several ranks, as ingest/join.h writes them: what a rank sent, reductions over ranks, what a rank got;
// and tensors that they hold in parts (ingest/shards.h).
#include "server/lower/registry.h"

namespace plumbline {
namespace {

Expr flat(Expr x) { return reshape(x, {x.count()}); }

// What a rank handed to a collective, row-major.
void lower_send(Call& call) { call.returns(flat(call.tensor("input"))); }

// What a rank got: the sources one after the other.
void lower_receive(Call& call) {
  if (!call.has("sources")) call.unsupported("a collective of which other ranks' traces are needed");
  const std::vector<Expr> sources = call.tensors("sources");
  const Shape shape = call.result_shape();
  std::vector<Expr> pieces;
  std::vector<View> views;
  std::int64_t start = 0;
  for (const Expr& source : sources) {
    if (source.format() != call.result_format()) call.unsupported("sources of another element type");
    pieces.push_back(flat(source));
    views.push_back({pieces.back().shape(), {1}, start});
    start += pieces.back().count();
  }
  if (start != count(shape))
    throw LowerError(std::to_string(count(shape)) + " elements were expected from the sources, found " +
                     std::to_string(start));
  call.returns(pieces.size() == 1
                   ? reshape(pieces.front(), shape)
                   : assemble(call.emitter(), shape, std::nullopt, pieces, std::move(views), call.result_format()));
}

// The box of a whole that a rank holds; what lies beside it in its storage is padding.
void lower_part(Call& call) { call.returns(call.tensor("input")); }

// Boxes of a whole, which begin at these elements of it.
void lower_whole(Call& call) {
  const std::vector<Expr> parts = call.tensors("parts");
  const std::vector<std::int64_t> offsets = call.integers("offsets");
  if (parts.empty() || offsets.size() != parts.size()) call.unsupported("parts without their places");
  const Shape shape = call.result_shape(), strides = row_major_strides(shape);
  std::vector<View> views;
  for (std::size_t i = 0; i < parts.size(); ++i) views.push_back({parts[i].shape(), strides, offsets[i]});
  call.returns(assemble(call.emitter(), shape, std::nullopt, parts, std::move(views), call.result_format()));
}

// Links add in the format in which they carry, in an order of their own: a ring adds one chunk from rank 1 on, the next
// from rank 2 on. The sum of two has no order.
Expr total(const std::vector<Expr>& terms, Format format) {
  if (terms.size() == 1) return terms[0];
  if (terms.size() == 2) return terms[0] + terms[1];
  Emitter& emitter = *terms[0].emitter;
  const auto rows = static_cast<std::int64_t>(terms.size()), n = terms[0].count();
  std::vector<View> views;
  for (std::int64_t r = 0; r < rows; ++r) views.push_back({{n}, {1}, r * n});
  const Expr stacked = assemble(emitter, {rows, n}, std::nullopt, terms, std::move(views), format);
  const Expr index = iota(emitter, {rows}, 0, 0, Format::kInt64);
  return flat(scatter_add(stacked, index, 1, format));
}

std::vector<Expr> inputs(Call& call) {
  std::vector<Expr> terms = call.tensors("inputs");
  if (terms.empty()) call.unsupported("no inputs");
  const Format format = call.result_format();
  for (Expr& term : terms) {
    if (term.format() != format) call.unsupported("inputs of another element type");
    term = flat(term);
  }
  call.emitter().set_compute(format);
  return terms;
}

void lower_sum(Call& call) { call.returns(total(inputs(call), call.result_format())); }

// Either each term is multiplied by 1/n, which was rounded, or the sum is divided: the former errs more.
void lower_average(Call& call) {
  std::vector<Expr> terms = inputs(call);
  if (!is_float(call.result_format())) call.unsupported("an average of integers");
  const double share = 1 / static_cast<double>(terms.size());
  for (Expr& term : terms) term = term * share;
  call.returns(total(terms, call.result_format()));
}

template <Expr (*combine)(Expr, Expr)>
void lower_fold(Call& call) {
  const std::vector<Expr> terms = inputs(call);
  Expr result = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) result = combine(result, terms[i]);
  call.returns(result);
}

Expr product(Expr a, Expr b) { return a * b; }

}  // namespace

std::span<const Rule> collective_rules() {
  static const Rule kRules[] = {
      {"send", {"default"}, lower_send},
      {"receive", {"default"}, lower_receive},
      {"part", {"default"}, lower_part},
      {"whole", {"default"}, lower_whole},
      {"reduce", {"sum"}, lower_sum},
      {"reduce", {"avg"}, lower_average},
      {"reduce", {"product"}, lower_fold<product>},
      {"reduce", {"max"}, lower_fold<maximum>},
      {"reduce", {"min"}, lower_fold<minimum>},
  };
  return kRules;
}

}  // namespace plumbline
