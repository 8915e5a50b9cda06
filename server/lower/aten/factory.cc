// Tensors made from numbers alone (ATen: native/TensorFactories.cpp, native/RangeFactories.cpp). They are operations
// with an output format, never leaves.
#include "server/lower/integer.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

Expr filled(Call& call, Expr value) { return expand(value, call.result_shape()); }

template <int value>
void lower_filled_with(Call& call) {
  call.returns(filled(call, call.emitter().constant(value, call.result_format())));
}

void lower_full(Call& call) { call.returns(filled(call, call.stored("fill_value"))); }

void lower_fill(Call& call) { call.returns(filled(call, reshape(call.stored("value"), {}))); }

void lower_scalar_tensor(Call& call) { call.returns(filled(call, call.stored("s"))); }

// It may start at a whole number that was read of a tensor, as the pointer into a ring of rows is.
void lower_arange(Call& call) {
  const double step = call.real("step", 1);
  const Format format = call.result_format();
  const auto counted_from = [&](double start) {
    return iota(call.emitter(), call.result_shape(), start, step, format);
  };
  if (!call.has("start") || call.known_number("start") || !is_integer(format)) {
    call.returns(counted_from(call.real("start", 0)));
  } else {
    call.returns(whole_sum(call.operand("start"), counted_from(0), format));
  }
}

void lower_linspace(Call& call) {
  const double start = call.real("start"), end = call.real("end");
  const std::int64_t steps = count(call.result_shape());
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  call.returns(iota(call.emitter(), call.result_shape(), start, step, call.result_format()));
}

// Between numbers that tensors hold.
void lower_linspace_of_tensors(Call& call) {
  const Format format = call.result_format();
  if (!is_float(format) || compute_format(format) != format) call.unsupported("16-bit or integer elements");
  const Expr start = reshape(call.operand("start"), {}), end = reshape(call.operand("end"), {});
  const Shape shape = call.result_shape();
  const std::int64_t steps = count(shape);
  if (steps < 2) {
    call.returns(filled(call, start));
    return;
  }
  const Expr step = (end - start) / static_cast<double>(steps - 1);
  call.returns(start + step * iota(call.emitter(), shape, 0, 1, Format::kInt64));
}

void lower_eye(Call& call) {
  Emitter& emitter = call.emitter();
  const Shape shape = call.result_shape();
  if (shape.size() != 2) call.unsupported("shape");
  const Expr rows = iota(emitter, {shape[0], 1}, 0, 1, Format::kInt64);
  const Expr columns = iota(emitter, {1, shape[1]}, 0, 1, Format::kInt64);
  const Format format = call.result_format();
  call.returns(
      select(compare(Primitive::kEqual, rows, columns), emitter.constant(1, format), emitter.constant(0, format)));
}

// A number leaves for Python.
void lower_local_scalar_dense(Call& call) {
  const Expr source = reshape(call.tensor("self"), {});
  const Format computes = call.text("reader", "") == "numpy" ? source.format() : Format::kFloat64;
  call.emitter().graph().reads.push_back(
      {source.id, call.real("value"), computes, static_cast<std::uint32_t>(call.emitter().graph().origins.size() - 1)});
}

}  // namespace

std::span<const Rule> factory_rules() {
  static const Rule kRules[] = {
      {"zeros", {"default"}, lower_filled_with<0>},
      {"_efficientzerotensor", {"default"}, lower_filled_with<0>},
      {"ones", {"default"}, lower_filled_with<1>},
      {"zeros_like", {"default"}, lower_filled_with<0>},
      {"ones_like", {"default"}, lower_filled_with<1>},
      {"new_zeros", {"default"}, lower_filled_with<0>},
      {"new_ones", {"default"}, lower_filled_with<1>},
      {"zero", {"default"}, lower_filled_with<0>, kOnlyInPlace | kForeach},
      {"full", {"default"}, lower_full},
      {"full_like", {"default"}, lower_full},
      {"new_full", {"default"}, lower_full},
      {"fill", {"Scalar", "Tensor"}, lower_fill, kInPlace},
      {"scalar_tensor", {"default"}, lower_scalar_tensor},
      {"arange", {"default", "start", "start_step"}, lower_arange},
      {"linspace", {"default"}, lower_linspace},
      {"linspace", {"Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"}, lower_linspace_of_tensors, kObserved},
      {"eye", {"default", "m"}, lower_eye},
      {"_local_scalar_dense", {"default"}, lower_local_scalar_dense},
  };
  return kRules;
}

}  // namespace plumbline
