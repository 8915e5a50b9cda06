// Fused attention of CUDA builds: FlashAttention, CUTLASS's memory-efficient kernels and cuDNN (ATen:
// native/transformers/cuda). They accumulate in fp32, take exponentials as 2^(x log2 e), and round the probabilities
// and their gradients to 16-bit inputs' format before they multiply with them. What their generators and debug outputs
// hold is not modelled, and nothing reads it.
#include <limits>

#include "server/lower/aten/attention.h"
#include "server/lower/aten/attention_products.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

using namespace attention;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Where kernels differ in what they are called with.
struct Kernel {
  bool lengths_first = false;  // Tensors are [batch, length, heads, width].
  bool bottom_right = false;   // The last query sees the last key where lengths differ: otherwise query i key i.
  bool infinite = false;       // The logarithm of a sum without terms: infinite, or of 1.
  const char* bias = "attn_bias";
  const char* gradient = "grad_out";
};

constexpr Kernel kFlash{.bottom_right = true, .infinite = true};
constexpr Kernel kFlashOfLengths{.lengths_first = true, .bottom_right = true, .infinite = true};
constexpr Kernel kEfficient{.gradient = "grad_out_"};
constexpr Kernel kEfficientOfLengths{.lengths_first = true, .bias = "bias", .gradient = "grad_out_"};
constexpr Kernel kOther{};

// Arguments that change what is computed in ways that are not modelled.
void refuse_variants(Call& call) {
  for (const char* name : {"cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k", "seqlen_k", "seqused_k",
                           "alibi_slopes", "block_table"})
    if (call.has(name)) call.unsupported(std::string("'") + name + "'");
  for (const char* name : {"window_size_left", "window_size_right", "window_size"})
    if (call.has(name) && call.integer(name, -1) >= 0) call.unsupported(std::string("'") + name + "'");
}

// Verdicts name the operation without the type of its generator's state, which says nothing of what it computes.
void name_plainly(Call& call) {
  std::string& name = call.emitter().graph().origins.back().op;
  if (const auto kind = name.find(" on uint64"); kind != name.npos) name.resize(kind);
}

Expr heads_first(const Kernel& kernel, Expr x) { return kernel.lengths_first ? exchanged(x, 1, 2) : x; }

struct Operands {
  Expr q, k, v;  // k and v repeated for the heads of q.
  double scale;
  std::int64_t key_heads, value_heads;
  bool narrow;
};

Operands operands_of(Call& call, const Kernel& kernel) {
  name_plainly(call);
  refuse_variants(call);
  const Expr q = call.tensor("query"), k = call.tensor("key"), v = call.tensor("value");
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) call.unsupported("shapes");
  Operands o{heads_first(kernel, q),       heads_first(kernel, k), heads_first(kernel, v), scale_of(call, q), 0, 0,
             reduced_precision(q.format())};
  o.key_heads = o.k.size(1);
  o.value_heads = o.v.size(1);
  o.k = repeated(call, o.k, o.q.size(1));
  o.v = repeated(call, o.v, o.q.size(1));
  return o;
}

// How far to the right of its own a query sees keys; null: it sees all.
std::optional<std::int64_t> diagonal(Call& call, const Kernel& kernel, const Operands& o) {
  const std::int64_t longer = o.k.size(2) - o.q.size(2);
  switch (call.integer("custom_mask_type", 0)) {
    case 0:
      break;
    case 1:
      return 0;
    case 2:
      return longer;
    default:
      call.unsupported("'custom_mask_type'");
  }
  if (!call.boolean("is_causal", false)) return std::nullopt;
  return kernel.bottom_right ? longer : 0;
}

// scale q k^T plus bias, masked, as exponentials are taken of it.
Scores scores(Call& call, const Kernel& kernel, const Operands& o) {
  Scores made{o.scale * product(o.q, transposed(o.k))};
  if (const auto bias = call.optional_tensor(kernel.bias)) {
    made = masked(made, *bias);
    made.s = in_base_two(made.s);
  }
  if (const auto shift = diagonal(call, kernel, o)) made = causal(made, *shift);
  return made;
}

// The logarithms of the rows' sums as a kernel returns them: [batch, heads, length] or [.., 1], or filled up to a
// longer length with what makes a probability 0.
Expr filled(Call& call, Expr logsumexp, const Shape& wanted) {
  const Shape rows{logsumexp.size(0), logsumexp.size(1), logsumexp.size(2)};
  if (count(wanted) == logsumexp.count()) return reshape(logsumexp, wanted);
  if (wanted.size() != 3 || wanted[0] != rows[0] || wanted[1] != rows[1] || wanted[2] < rows[2])
    call.unsupported("shape of the logarithms");
  Emitter& emitter = call.emitter();
  const View view{rows, row_major_strides(wanted), 0};
  return assemble(emitter, wanted, expand(emitter.constant(kInfinity), wanted), {reshape(logsumexp, rows)}, {view},
                  logsumexp.format());
}

// exp(s - max) v * (1 / sum exp(s - max)), and the logarithm of the sum. Kernels go through the keys block by block and
// rescale what they added up whenever the maximum grows: e^(s - old) e^(old - new) is e^(s - new), and its rounding is
// charged as further terms of the sums (attention_products.h).
template <const Kernel& kernel>
void lower_forward(Call& call) {
  const Operands o = operands_of(call, kernel);
  const Softmax softmax = softmax_of(scores(call, kernel, o), true);
  rescaled(softmax.sums);
  const Expr weights = o.narrow ? cast(softmax.numerators, o.v.format()) : softmax.numerators;
  const Expr out = rescaled(product(weights, o.v)) * (1.0 / softmax.total);
  call.returns(0, kernel.lengths_first ? exchanged(out, 1, 2) : out);
  if (!call.wants(1) || count(call.result_shape(1)) == 0) return;
  const Expr sums = log(softmax.total);
  Expr logsumexp = in_base_two(softmax.maximum) + sums;
  if (kernel.infinite) logsumexp = select(softmax.empty, call.emitter().constant(kInfinity), logsumexp);
  call.returns(1, filled(call, logsumexp, call.result_shape(1)));
}

// p = exp(s - logsumexp); dv = p^T dout; ds = p (dout v^T - sum(dout out)); dq = scale ds k; dk = scale ds^T q; dbias =
// ds. Of 16-bit inputs p is rounded to their format, which some kernels do before ds is formed and others after, and
// gradients of the copies of a head are rounded before they are added.
template <const Kernel& kernel>
void lower_backward(Call& call) {
  const Operands o = operands_of(call, kernel);
  const Expr gradient = heads_first(kernel, call.tensor(kernel.gradient));
  const Expr out = heads_first(kernel, call.tensor("out"));
  const Scores s = scores(call, kernel, o);
  Expr logsumexp = call.tensor("logsumexp");
  const Shape rows{s.s.size(0), s.s.size(1), s.s.size(2), 1};
  if (logsumexp.rank() == 3 && logsumexp.size(2) > rows[2]) logsumexp = narrow(logsumexp, 2, 0, rows[2]);
  if (logsumexp.count() != count(rows)) call.unsupported("shape of the logarithms");
  logsumexp = in_base_two(reshape(logsumexp, rows));

  const Format format = o.q.format();
  const auto held = [&](Expr x) { return o.narrow ? cast(x, format) : x; };
  const auto returns = [&](std::size_t output, Expr x, std::int64_t heads) {
    if (!call.wants(output)) return;
    const Expr summed = x.size(1) == heads ? x : summed_groups(held(x), heads);
    call.returns(output, kernel.lengths_first ? exchanged(summed, 1, 2) : summed);
  };
  const Expr p = held(exp_less(s, logsumexp, true));
  returns(2, product(transposed(p), gradient), o.value_heads);
  const Expr ds = p * (product(gradient, transposed(o.v)) - sum(gradient * out, last_dim(out)));
  if (call.wants(3)) {
    if (call.result_shape(3) != ds.shape()) call.unsupported("gradient of a bias that is expanded within");
    call.returns(3, ds);
  }
  returns(0, o.scale * product(held(ds), o.k), o.q.size(1));
  returns(1, o.scale * product(transposed(held(ds)), o.q), o.key_heads);
}

}  // namespace

std::span<const Rule> attention_cuda_rules() {
  static const Rule kRules[] = {
      {"_scaled_dot_product_flash_attention", {"default"}, lower_forward<kFlash>},
      {"_scaled_dot_product_flash_attention_backward", {"default"}, lower_backward<kFlash>},
      {"_scaled_dot_product_efficient_attention", {"default"}, lower_forward<kEfficient>},
      {"_scaled_dot_product_efficient_attention_backward", {"default"}, lower_backward<kEfficient>},
      {"_scaled_dot_product_cudnn_attention", {"default"}, lower_forward<kOther>},
      {"_scaled_dot_product_cudnn_attention_backward", {"default"}, lower_backward<kOther>},
      {"_scaled_dot_product_fused_attention_overrideable", {"default"}, lower_forward<kOther>},
      {"_scaled_dot_product_fused_attention_overrideable_backward", {"default"}, lower_backward<kOther>},
      {"_flash_attention_forward", {"default"}, lower_forward<kFlashOfLengths>},
      {"_flash_attention_backward", {"default"}, lower_backward<kFlashOfLengths>},
      {"_efficient_attention_forward", {"default"}, lower_forward<kEfficientOfLengths>},
      {"_efficient_attention_backward", {"default"}, lower_backward<kEfficientOfLengths>},
      {"_cudnn_attention_forward", {"default"}, lower_forward<kOther>},
      {"_cudnn_attention_backward", {"default"}, lower_backward<kOther>},
  };
  return kRules;
}

}  // namespace plumbline
