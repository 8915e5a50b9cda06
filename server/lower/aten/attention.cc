// Fused attention of CPU builds (ATen: native/cpu/FlashAttentionKernel.cpp). q, k, v are [batch, heads, length, width];
// a head of k and v may serve a group of consecutive heads of q.
#include <cmath>
#include <limits>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

// Heads of k or v, each repeated for the heads of q that it serves.
Expr repeated(Call& call, Expr x, std::int64_t heads) {
  if (x.rank() != 4 || x.size(1) == heads) return x;
  const Shape s = x.shape();
  if (s[1] == 0 || heads % s[1] != 0) call.unsupported("numbers of heads");
  const Expr groups = expand(reshape(x, {s[0], s[1], 1, s[2], s[3]}), {s[0], s[1], heads / s[1], s[2], s[3]});
  return reshape(groups, {s[0], heads, s[2], s[3]});
}

// The gradient of a head of k or v: the sum over those of its copies.
Expr summed_groups(Expr x, std::int64_t heads) {
  const Shape s = x.shape();
  if (s[1] == heads) return x;
  return reshape(sum(reshape(x, {s[0], heads, s[1] / heads, s[2], s[3]}), {2}), {s[0], heads, s[2], s[3]});
}

// scale q k^T plus mask, -inf where the mask forbids. 16-bit products are accumulated and kept in fp32.
Expr scores(Call& call, Expr q, Expr k) {
  if (q.rank() != 4 || k.rank() != 4) call.unsupported("shapes");
  if (call.real("dropout_p", 0) != 0) call.unsupported("dropout");
  const double scale =
      call.has("scale") ? call.real("scale") : 1.0 / std::sqrt(static_cast<double>(q.size(q.rank() - 1)));
  Emitter& emitter = call.emitter();
  Expr s = scale * matmul(q, transposed(k));
  if (const auto mask = call.optional_tensor("attn_mask")) {
    if (mask->format() == Format::kBool) {
      s = select(*mask, s, emitter.constant(-std::numeric_limits<double>::infinity()));
    } else {
      s = s + *mask;
    }
  }
  if (call.boolean("is_causal", false)) {
    // Query i sees keys up to i.
    const Expr query = iota(emitter, {q.size(2), 1}, 0, 1, Format::kInt64);
    const Expr key = iota(emitter, {1, k.size(2)}, 0, 1, Format::kInt64);
    const Expr visible = compare(Primitive::kLessEqual, key, query);
    s = select(visible, s, emitter.constant(-std::numeric_limits<double>::infinity()));
  }
  return s;
}

bool reduced_precision(Format format) { return format == Format::kFloat16 || format == Format::kBFloat16; }

// Kernels on 16-bit numbers take an exponential of their own.
Expr fused_exp(Expr x, Format elements) {
  Attributes attributes;
  attributes.scalar = reduced_precision(elements) ? 1 : 0;
  return x.emitter->arithmetic(Primitive::kExp, {x}, x.shape(), attributes);
}

// exp(s - max) v * (1 / sum exp(s - max)), the numerators rounded to the format of v before the product; the log of the
// sum beside it. One block of keys: the running rescaling of longer rows changes rounding only.
void lower_attention(Call& call) {
  const Expr q = call.tensor("query");
  if (q.rank() != 4) call.unsupported("shapes");
  const Expr k = repeated(call, call.tensor("key"), q.size(1)), v = repeated(call, call.tensor("value"), q.size(1));
  const Expr s = scores(call, q, k);
  // Rows without any key give 0.
  Emitter& emitter = call.emitter();
  const Expr largest = amax(s, last_dim(s));
  const Expr empty = equal(largest, -std::numeric_limits<double>::infinity());
  const Expr maximum = select(empty, emitter.constant(0), largest);
  const Expr numerators = fused_exp(s - maximum, v.format());
  const Expr sums = sum(numerators, last_dim(s));
  const Expr total = select(empty, emitter.constant(1), sums);
  const Expr weights = reduced_precision(v.format()) ? cast(numerators, v.format()) : numerators;
  call.returns(0, matmul(weights, v) * (1.0 / total));
  if (call.wants(1)) {
    Expr logsumexp = maximum + log(total);
    const Shape shape = logsumexp.shape();
    call.returns(1, reshape(logsumexp, {shape[0], shape[1], shape[2]}));
  }
}

// p = exp(s - logsumexp); dv = p^T dout; ds = p (dout v^T - sum(dout out)); dq = scale ds k; dk = scale ds^T q. The
// factors of the products are rounded to a 16-bit input's format.
void lower_attention_backward(Call& call) {
  const Expr gradient = call.tensor("grad_out");
  const Expr q = call.tensor("query"), key = call.tensor("key"), value = call.tensor("value"), out = call.tensor("out");
  if (q.rank() != 4 || key.rank() != 4 || value.rank() != 4) call.unsupported("shapes");
  const Expr k = repeated(call, key, q.size(1)), v = repeated(call, value, q.size(1));
  const Expr logsumexp = call.tensor("logsumexp");
  const Expr s = scores(call, q, k);
  const Shape shape = logsumexp.shape();
  if (shape.size() != 3) call.unsupported("shape of logsumexp");
  const auto narrow = [&](Expr x) { return reduced_precision(q.format()) ? cast(x, q.format()) : x; };
  const Expr p = fused_exp(s - reshape(logsumexp, {shape[0], shape[1], shape[2], 1}), q.format());
  call.returns(2, summed_groups(matmul(transposed(narrow(p)), gradient), value.size(1)));
  const Expr product = sum(gradient * out, last_dim(out));
  const Expr ds = narrow(p * (matmul(gradient, transposed(v)) - product));
  const double scale =
      call.has("scale") ? call.real("scale") : 1.0 / std::sqrt(static_cast<double>(q.size(q.rank() - 1)));
  call.returns(0, scale * matmul(ds, k));
  call.returns(1, summed_groups(scale * matmul(transposed(ds), q), key.size(1)));
}

}  // namespace

std::span<const Rule> attention_rules() {
  static const Rule kRules[] = {
      {"_scaled_dot_product_flash_attention_for_cpu", {"default"}, lower_attention},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", {"default"}, lower_attention_backward},
  };
  return kRules;
}

}  // namespace plumbline
