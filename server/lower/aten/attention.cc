// Fused attention of CPU builds (ATen: native/cpu/FlashAttentionKernel.cpp). q, k, v are [batch, heads, length, width];
// a head of k and v may serve a group of consecutive heads of q.
#include "server/lower/aten/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "server/lower/registry.h"

namespace plumbline {
namespace attention {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();

Expr repeated(Call& call, Expr x, std::int64_t heads) {
  if (x.rank() != 4 || x.size(1) == heads) return x;
  const Shape s = x.shape();
  if (s[1] == 0 || heads % s[1] != 0) call.unsupported("numbers of heads");
  const Expr groups = expand(reshape(x, {s[0], s[1], 1, s[2], s[3]}), {s[0], s[1], heads / s[1], s[2], s[3]});
  return reshape(groups, {s[0], heads, s[2], s[3]});
}

Expr summed_groups(Expr x, std::int64_t heads) {
  const Shape s = x.shape();
  if (s[1] == heads) return x;
  return reshape(sum(reshape(x, {s[0], heads, s[1] / heads, s[2], s[3]}), {2}), {s[0], heads, s[2], s[3]});
}

Scores masked(Scores scores, Expr mask) {
  Expr allowed = mask;
  if (mask.format() != Format::kBool) {
    allowed = not_equal(mask, kForbidden);
    scores.s = scores.s + select(allowed, mask, mask.emitter->constant(0));
  }
  scores.counts = scores.counts ? logical_and(*scores.counts, allowed) : allowed;
  return scores;
}

Scores causal(Scores scores, std::int64_t shift) {
  Emitter& emitter = *scores.s.emitter;
  const Expr query = iota(emitter, {scores.s.size(2), 1}, static_cast<double>(shift), 1, Format::kInt64);
  const Expr key = iota(emitter, {1, scores.s.size(3)}, 0, 1, Format::kInt64);
  const Expr allowed = compare(Primitive::kLessEqual, key, query);
  scores.counts = scores.counts ? logical_and(*scores.counts, allowed) : allowed;
  return scores;
}

double scale_of(Call& call, const Expr& q) {
  if (call.real("dropout_p", 0) != 0) call.unsupported("dropout");
  return call.has("scale") ? call.real("scale") : 1.0 / std::sqrt(static_cast<double>(q.size(q.rank() - 1)));
}

bool reduced_precision(Format format) { return format == Format::kFloat16 || format == Format::kBFloat16; }

Expr exp_less(const Scores& scores, Expr of, bool own) {
  const Expr zero = scores.s.emitter->constant(0);
  Expr x = scores.s - of;
  if (scores.counts) x = select(*scores.counts, x, zero);
  Attributes attributes;
  attributes.scalar = own ? 1 : 0;
  const Expr made = x.emitter->arithmetic(Primitive::kExp, {x}, x.shape(), attributes);
  return scores.counts ? select(*scores.counts, made, zero) : made;
}

Softmax softmax_of(const Scores& scores, bool own_exp) {
  Emitter& emitter = *scores.s.emitter;
  const Expr seen = scores.counts ? select(*scores.counts, scores.s, emitter.constant(kForbidden)) : scores.s;
  const Expr largest = amax(seen, last_dim(seen));
  const Expr empty = equal(largest, kForbidden);
  const Expr maximum = select(empty, emitter.constant(0), largest);
  const Expr numerators = exp_less(scores, maximum, own_exp);
  const Expr sums = sum(numerators, last_dim(numerators));
  return {numerators, maximum, empty, sums, select(empty, emitter.constant(1), sums)};
}

}  // namespace attention

namespace {

using namespace attention;

// scale q k^T plus mask. 16-bit products are accumulated and kept in fp32.
Scores scores(Call& call, Expr q, Expr k) {
  if (q.rank() != 4 || k.rank() != 4) call.unsupported("shapes");
  Scores s{scale_of(call, q) * matmul(q, transposed(k))};
  if (const auto mask = call.optional_tensor("attn_mask")) s = masked(s, *mask);
  return call.boolean("is_causal", false) ? causal(s, 0) : s;
}

// exp(s - max) v * (1 / sum exp(s - max)), the numerators rounded to the format of v before the product; the log of the
// sum beside it. One block of keys: the running rescaling of longer rows changes rounding only. Kernels on 16-bit
// numbers take an exponential of their own.
void lower_attention(Call& call) {
  const Expr q = call.tensor("query");
  if (q.rank() != 4) call.unsupported("shapes");
  const Expr k = repeated(call, call.tensor("key"), q.size(1)), v = repeated(call, call.tensor("value"), q.size(1));
  const bool narrow = reduced_precision(v.format());
  const Softmax softmax = softmax_of(scores(call, q, k), narrow);
  const Expr weights = narrow ? cast(softmax.numerators, v.format()) : softmax.numerators;
  call.returns(0, matmul(weights, v) * (1.0 / softmax.total));
  if (call.wants(1)) {
    Expr logsumexp = softmax.maximum + log(softmax.total);
    const Shape shape = logsumexp.shape();
    call.returns(1, reshape(logsumexp, {shape[0], shape[1], shape[2]}));
  }
}

// The blocks that the backward pass goes by.
constexpr std::int64_t kKeysOfBlock = 512;
std::int64_t queries_of_block(std::int64_t queries) {
  if (queries >= 768) return 256;
  return queries >= 192 ? 64 : 32;
}

// held + scale a b, the sums over at most `block` terms added one after the other to what is held in a's 16-bit format.
Expr added_by_blocks(std::optional<Expr> held, Expr a, Expr b, std::int64_t block, std::optional<Expr> scale) {
  const std::int64_t terms = a.size(3);
  if (terms == 0 && !held) return matmul(a, b);
  for (std::int64_t start = 0; start < terms; start += block) {
    const std::int64_t taken = std::min(block, terms - start);
    held = cast(matmul(narrow(a, 3, start, taken), narrow(b, 2, start, taken), held, scale), a.format());
  }
  return *held;
}

// The sum of scale a^T b over the copies of each of `heads`, and over blocks of queries, likewise.
Expr added_by_heads(Expr a, Expr b, std::int64_t heads, std::optional<Expr> scale) {
  const auto of_copy = [&](Expr x, std::int64_t copy) {
    const Shape s = x.shape();
    const Expr grouped = reshape(x, {s[0], heads, s[1] / heads, s[2], s[3]});
    return reshape(narrow(grouped, 2, copy, 1), {s[0], heads, s[2], s[3]});
  };
  std::optional<Expr> held;
  for (std::int64_t copy = 0; copy < a.size(1) / heads; ++copy)
    held = added_by_blocks(held, transposed(of_copy(a, copy)), of_copy(b, copy), queries_of_block(b.size(2)), scale);
  return *held;
}

// p = exp(s - logsumexp); dv = p^T dout; ds = p (dout v^T - sum(dout out)); dq = scale ds k; dk = scale ds^T q. Of
// 16-bit inputs the factors of the products are rounded to their format, and gradients gather in it.
void lower_attention_backward(Call& call) {
  const Expr gradient = call.tensor("grad_out");
  const Expr q = call.tensor("query"), key = call.tensor("key"), value = call.tensor("value"), out = call.tensor("out");
  if (q.rank() != 4 || key.rank() != 4 || value.rank() != 4) call.unsupported("shapes");
  const Expr k = repeated(call, key, q.size(1)), v = repeated(call, value, q.size(1));
  const Expr logsumexp = call.tensor("logsumexp");
  const Scores s = scores(call, q, k);
  const Shape shape = logsumexp.shape();
  if (shape.size() != 3) call.unsupported("shape of logsumexp");
  const Expr p = exp_less(s, reshape(logsumexp, {shape[0], shape[1], shape[2], 1}), reduced_precision(q.format()));
  const Expr product = sum(gradient * out, last_dim(out));
  const Expr ds = p * (matmul(gradient, transposed(v)) - product);
  if (!reduced_precision(q.format()) || k.size(1) == 0) {
    const double scale = scale_of(call, q);
    call.returns(0, scale * matmul(ds, k));
    call.returns(1, summed_groups(scale * matmul(transposed(ds), q), key.size(1)));
    call.returns(2, summed_groups(matmul(transposed(p), gradient), value.size(1)));
    return;
  }
  const Expr scale = call.emitter().constant(scale_of(call, q)), narrow_ds = cast(ds, q.format());
  call.returns(0, added_by_blocks(std::nullopt, narrow_ds, k, kKeysOfBlock, scale));
  call.returns(1, added_by_heads(narrow_ds, q, key.size(1), scale));
  call.returns(2, added_by_heads(cast(p, q.format()), gradient, value.size(1), std::nullopt));
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
