// Operations on sparse tensors in coordinates (ATen: native/sparse/SparseTensor.cpp, SparseTensorMath.cpp). The client
// describes such a tensor by its indices [sparse dimensions, n] and its values [n, ...], in a list of two, and names
// the operation with " on sparse_coo" at its end. A result is two: indices and values.
#include "server/lower/aten/bag.h"
#include "server/lower/aten/rows.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

struct Sparse {
  Expr indices, values;
  std::int64_t entries() const { return indices.size(1); }
};

Sparse sparse_operand(Call& call, std::string_view name) {
  if (!call.is_list(name)) call.unsupported("argument '" + std::string(name) + "' is dense");
  const std::vector<Expr> parts = call.tensors(name);
  if (parts.size() != 2 || parts[0].rank() != 2 || parts[1].rank() < 1 || parts[0].size(1) != parts[1].size(0))
    call.unsupported("argument '" + std::string(name) + "' has no indices and values");
  if (parts[1].count() == 0) call.unsupported("no entries");
  return {parts[0], parts[1]};
}

// One sparse dimension's index of each entry.
Expr coordinate(const Sparse& x, std::int64_t dim) { return reshape(narrow(x.indices, 0, dim, 1), {x.entries()}); }

Expr as_rows(Expr x, std::int64_t rows) { return reshape(x, {rows, x.count() / rows}); }

// A dense tensor's sparse dimensions as one, and the entries' places there.
struct Rows {
  std::int64_t count;
  Expr places;
};
Rows rows_of(Call& call, const Sparse& x, const Shape& dense) {
  const std::int64_t dims = x.indices.size(0);
  if (dims < 1 || static_cast<std::size_t>(dims) > dense.size() || count(dense) == 0) call.unsupported("shapes");
  const InIntegers integers(call.emitter());
  Rows rows{dense[0], coordinate(x, 0)};
  for (std::int64_t d = 1; d < dims; ++d) {
    const std::int64_t size = dense[static_cast<std::size_t>(d)];
    rows = {rows.count * size, rows.places * static_cast<double>(size) + coordinate(x, d)};
    call.emitter().ranges().set(rows.places.id, {0, static_cast<double>(rows.count)});
  }
  if (count(dense) / rows.count != x.values.count() / x.entries()) call.unsupported("shapes");
  return rows;
}

// Dense numbers with the entries added, one after the other.
Expr added(Call& call, Expr dense, const Sparse& x, Expr values) {
  const Rows rows = rows_of(call, x, dense.shape());
  return reshape(accumulated(as_rows(dense, rows.count), as_rows(values, x.entries()), rows.places, dense.format()),
                 dense.shape());
}

void give(Call& call, Expr indices, Expr values) {
  call.returns(0, indices);
  call.returns(1, values);
}

void lower_made(Call& call) { give(call, call.tensor("indices"), call.tensor("values")); }

void lower_clone(Call& call) {
  const Sparse x = sparse_operand(call, "self");
  give(call, x.indices, x.values);
}

// Entries of one place are one: the sum.
void lower_coalesce(Call& call) {
  const Sparse x = sparse_operand(call, "self");
  if (x.indices.size(0) != 1) call.unsupported("several sparse dimensions");
  const std::int64_t n = x.entries(), runs = call.result_shape(0).back();
  const Expr places = coordinate(x, 0), order = ascending(places);
  const Runs found = runs_of(gather_rows(reshape(places, {n, 1}), order), runs);
  const Expr sorted = gather_rows(as_rows(x.values, n), order);
  give(call, reshape(found.first, {1, runs}),
       reshape(scatter_add(sorted, found.which, runs, x.values.format()), call.result_shape(1)));
}

// A dense tensor's numbers at the places of a sparse one.
void lower_mask(Call& call) {
  const Expr dense = call.tensor("self");
  const Sparse mask = sparse_operand(call, "mask");
  const Rows rows = rows_of(call, mask, dense.shape());
  give(call, mask.indices, reshape(gather_rows(as_rows(dense, rows.count), rows.places), mask.values.shape()));
}

void lower_add(Call& call) {
  if (call.is_list("self")) call.unsupported("a sparse sum");
  const Sparse x = sparse_operand(call, "other");
  const bool scaled = call.has("alpha") && call.known_number("alpha") != 1.0;
  call.returns(added(call, call.tensor("self"), x, scaled ? call.operand("alpha") * x.values : x.values));
}

void lower_to_dense(Call& call) {
  const Sparse x = sparse_operand(call, "self");
  call.returns(added(call, expand(call.emitter().constant(0, x.values.format()), call.result_shape()), x, x.values));
}

void lower_scaled(Call& call) {
  const Sparse x = sparse_operand(call, "self");
  if (call.is_list("other")) call.unsupported("a sparse product");
  const Expr factor = call.operand("other");
  if (factor.count() != 1) call.unsupported("a factor that is no number");
  give(call, x.indices, reshape(x.values * factor, call.result_shape(1)));
}

// Each entry times its row of the dense matrix, added up by the entry's row.
Expr product(Call& call, const Sparse& x, Expr dense, std::optional<Expr> before, std::optional<Expr> factor) {
  if (x.indices.size(0) != 2 || x.values.rank() != 1 || dense.rank() != 2) call.unsupported("shapes");
  Expr entries = reshape(x.values, {x.entries(), 1});
  if (factor) entries = *factor * entries;
  const Format format = dense.format();
  const Expr terms = entries * gather_rows(dense, coordinate(x, 1));
  const Expr start = before ? *before : expand(call.emitter().constant(0, format), call.result_shape());
  return accumulated(start, terms, coordinate(x, 0), format);
}

void lower_mm(Call& call) {
  call.returns(product(call, sparse_operand(call, "self"), call.tensor("mat2"), std::nullopt, std::nullopt));
}

// beta self + alpha mat1 mat2
void lower_addmm(Call& call) {
  const Sparse x = sparse_operand(call, "mat1");
  const std::optional<double> beta = call.known_number("beta");
  std::optional<Expr> before, factor;
  if (!call.has("beta") || beta == 1.0)
    before = expand(call.tensor("self"), call.result_shape());
  else if (beta != 0.0)
    before = expand(call.operand("beta") * call.tensor("self"), call.result_shape());
  if (call.has("alpha") && call.known_number("alpha") != 1.0) factor = call.operand("alpha");
  call.returns(product(call, x, call.tensor("mat2"), before, factor));
}

}  // namespace

std::span<const Rule> sparse_rules() {
  static const Rule kRules[] = {
      {"_sparse_coo_tensor_with_dims_and_tensors", {"default"}, lower_made},
      {"_embedding_bag_backward", {"default"}, lower_sparse_bag_backward},
      {"clone", {"default"}, lower_clone},
      {"_coalesce", {"default"}, lower_coalesce, kObserved},
      {"sparse_mask", {"default"}, lower_mask},
      {"add", {"Tensor"}, lower_add, kInPlace},
      {"_to_dense", {"default"}, lower_to_dense},
      {"mul", {"Tensor", "Scalar"}, lower_scaled},
      {"mm", {"default"}, lower_mm},
      {"addmm", {"default"}, lower_addmm},
      {"_sparse_addmm", {"default"}, lower_addmm},
  };
  return kRules;
}

}  // namespace plumbline
