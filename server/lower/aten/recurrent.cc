// The fused layer of LSTM cells of CPU builds (ATen: native/mkldnn/RNN.cpp; oneDNN: cpu/rnn), one direction a call.
// 16-bit layers accumulate in fp32; what they hold in their own format was found by reproducing them bit by bit: the
// sum of the biases, the states between steps, and for the backward pass the gates and the gates' gradients.
#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr std::int64_t kLstm = 2;  // native/RNN.h

struct Layer {
  std::int64_t time, rows, inputs, width;
  bool reverse;
  Expr x, w, u, bias;  // [time, rows, inputs], [4 width, inputs], [4 width, width], [4 width]
  Format format;

  std::int64_t step(std::int64_t s) const { return reverse ? time - 1 - s : s; }
  Expr at(Expr sequence, std::int64_t t, std::int64_t size) const {
    return reshape(narrow(sequence, 0, t, 1), {rows, size});
  }
  // In the layer's own format.
  Expr held(Expr e) const { return cast(cast(e, format), e.format()); }
};

Layer layer_of(Call& call, const char* const (&weights)[4]) {
  if (call.integer("mode", 0) != kLstm) call.unsupported("cells other than LSTM");
  if (!call.integers("batch_sizes").empty()) call.unsupported("packed sequences");
  Layer l{};
  l.x = call.tensor("input");
  l.w = call.tensor(weights[0]);
  l.u = call.tensor(weights[1]);
  l.width = call.integer("hidden_size", 0);
  l.reverse = call.boolean("reverse", false);
  l.format = l.x.format();
  if (l.x.rank() != 3 || l.x.count() == 0 || l.width < 1) call.unsupported("shapes");
  l.time = l.x.size(0);
  l.rows = l.x.size(1);
  l.inputs = l.x.size(2);
  if (l.w.shape() != Shape{4 * l.width, l.inputs} || l.u.shape() != Shape{4 * l.width, l.width})
    throw LowerError("weights of " + std::to_string(4 * l.width) + " rows were expected, found " +
                     to_string(l.w.shape()) + " and " + to_string(l.u.shape()));
  l.bias = call.emitter().constant(0);
  if (call.boolean("has_biases", true))
    l.bias =
        l.held(reshape(call.tensor(weights[2]), {1, 4 * l.width}) + reshape(call.tensor(weights[3]), {1, 4 * l.width}));
  return l;
}

struct Gates {
  Expr in, forget, cell, out;
};

// The gates of one step, from its part of x W^T and the state before it.
Gates gates_of(const Layer& l, Expr projected, Expr h) {
  const Expr sums = matmul(h, transposed(l.u), projected) + l.bias;
  const auto part = [&](std::int64_t i) { return narrow(sums, 1, i * l.width, l.width); };
  return {sigmoid(part(0)), sigmoid(part(1)), tanh(part(2)), sigmoid(part(3))};
}

Expr projections(const Layer& l) {
  const Expr rows = reshape(l.x, {l.time * l.rows, l.inputs});
  return reshape(matmul(rows, transposed(l.w)), {l.time, l.rows, 4 * l.width});
}

// Joins the steps in the order of time, whatever the direction.
Expr joined(Call& call, const Layer& l, const std::vector<Expr>& steps) {
  std::vector<View> views;
  for (std::int64_t s = 0; s < l.time; ++s) {
    const Shape shape = steps[static_cast<std::size_t>(s)].shape();
    views.push_back({shape, row_major_strides(shape), l.step(s) * count(shape)});
  }
  return assemble(call.emitter(), {l.time, l.rows, steps[0].size(1)}, std::nullopt, steps, std::move(views),
                  steps[0].format());
}

// c = f c + i g, h = o tanh(c)
void lower_lstm(Call& call) {
  const Layer l = layer_of(call, {"weight0", "weight1", "weight2", "weight3"});
  const Shape state{l.rows, l.width};
  const Expr projected = projections(l);
  Expr h = reshape(call.tensor("hx_"), state), c = reshape(call.tensor("cx_"), state);
  std::vector<Expr> outputs;
  for (std::int64_t s = 0; s < l.time; ++s) {
    const Gates g = gates_of(l, l.at(projected, l.step(s), 4 * l.width), h);
    const Expr cell = g.forget * c + g.in * g.cell;
    h = cast(g.out * tanh(cell), l.format);
    c = cast(cell, l.format);
    outputs.push_back(h);
  }
  call.returns(0, joined(call, l, outputs));
  if (call.wants(1)) call.returns(1, reshape(h, call.result_shape(1)));
  if (call.wants(2)) call.returns(2, reshape(c, call.result_shape(2)));
}

// The forward pass again, from the states that it gave, then back through time: dC = dc + (1 - tanh(c)^2) o dh, and the
// gradients of the gates' sums.
void lower_lstm_backward(Call& call) {
  const Layer l = layer_of(call, {"weight1", "weight2", "weight3", "weight4"});
  const Shape state{l.rows, l.width};
  Emitter& emitter = call.emitter();
  const Expr projected = projections(l), y = call.tensor("output");
  if (y.shape() != Shape{l.time, l.rows, l.width}) call.unsupported("shape of output");
  std::vector<Expr> before, cells{reshape(call.tensor("cx_tmp"), state)};
  std::vector<Gates> gates;
  for (std::int64_t s = 0; s < l.time; ++s) {
    before.push_back(s == 0 ? reshape(call.tensor("hx_"), state) : l.at(y, l.step(s - 1), l.width));
    const Gates g = gates_of(l, l.at(projected, l.step(s), 4 * l.width), before.back());
    cells.push_back(cast(g.forget * cells.back() + g.in * g.cell, l.format));
    gates.push_back({l.held(g.in), l.held(g.forget), l.held(g.cell), l.held(g.out)});
  }
  const auto gradient = [&](const char* name) { return call.optional_tensor(name); };
  const auto dy = gradient("grad_output"), dhy = gradient("grad_hy"), dcy = gradient("grad_cy");
  std::optional<Expr> dh, dc;
  if (dhy) dh = reshape(*dhy, state);
  if (dcy) dc = reshape(*dcy, state);
  std::vector<Expr> sums(static_cast<std::size_t>(l.time));
  for (std::int64_t s = l.time; s-- > 0;) {
    const auto i = static_cast<std::size_t>(s);
    const Gates& g = gates[i];
    std::optional<Expr> total = dh;
    if (dy) total = dh ? l.at(*dy, l.step(s), l.width) + *dh : l.at(*dy, l.step(s), l.width);
    const Expr d = total ? *total : expand(emitter.constant(0), state);
    const Expr t = tanh(cells[i + 1]);
    const Expr through = (1.0 - t * t) * g.out * d;
    const Expr cell = dc ? *dc + through : through;
    const Expr parts[] = {cell * g.cell * g.in * (1.0 - g.in), cell * cells[i] * g.forget * (1.0 - g.forget),
                          cell * g.in * (1.0 - g.cell * g.cell), d * t * g.out * (1.0 - g.out)};
    std::vector<View> views;
    for (std::int64_t k = 0; k < 4; ++k) views.push_back({state, {4 * l.width, 1}, k * l.width});
    const Expr all =
        assemble(emitter, {l.rows, 4 * l.width}, std::nullopt, {parts, parts + 4}, std::move(views), parts[0].format());
    sums[i] = cast(all, l.format);
    dh = matmul(sums[i], l.u);
    dc = cell * g.forget;
  }
  const Expr by_time = reshape(joined(call, l, sums), {l.time * l.rows, 4 * l.width});
  const Expr states = reshape(joined(call, l, before), {l.time * l.rows, l.width});
  if (call.wants(0)) call.returns(0, reshape(matmul(by_time, l.w), l.x.shape()));
  if (call.wants(1)) call.returns(1, matmul(transposed(by_time), reshape(l.x, {l.time * l.rows, l.inputs})));
  if (call.wants(2)) call.returns(2, matmul(transposed(by_time), states));
  for (std::size_t output : {3, 4})
    if (call.wants(output)) call.returns(output, reshape(sum(by_time, {0}), call.result_shape(output)));
  if (call.wants(5)) call.returns(5, reshape(*dh, call.result_shape(5)));
  if (call.wants(6)) call.returns(6, reshape(*dc, call.result_shape(6)));
}

}  // namespace

std::span<const Rule> recurrent_rules() {
  static const Rule kRules[] = {
      {"mkldnn_rnn_layer", {"default"}, lower_lstm},
      {"mkldnn_rnn_layer_backward", {"default"}, lower_lstm_backward},
  };
  return kRules;
}

}  // namespace plumbline
