#include "server/pipeline/estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

namespace plumbline {
namespace {

constexpr double kOfAnOperation = 1e5;  // However small.
constexpr std::size_t kResultsMax = 3;  // An operation with more is no product, but works on lists, element by element.

double elements(std::span<const std::int64_t> sizes) {
  double product = 1;
  for (const std::int64_t size : sizes) product *= static_cast<double>(size);
  return product;
}

bool broadcasts_to(const Shape& operand, const Shape& result) {
  if (operand.size() > result.size()) return false;
  const std::size_t lead = result.size() - operand.size();
  for (std::size_t axis = 0; axis < operand.size(); ++axis)
    if (operand[axis] != 1 && operand[axis] != result[lead + axis]) return false;
  return true;
}

std::vector<const Shape*> operands_of(const TraceOp& op) {
  std::vector<const Shape*> shapes;
  for (const TraceArgument& argument : op.arguments) {
    if (const auto* one = std::get_if<TensorRef>(&argument.value)) shapes.push_back(&one->view.sizes);
    if (const auto* all = std::get_if<std::vector<TensorRef>>(&argument.value))
      for (const TensorRef& each : *all) shapes.push_back(&each.view.sizes);
  }
  return shapes;
}

// Takes the two largest operands and the largest result, whose leading axes of one size are a batch of products.
double product_work(const Shape& a, const Shape& b, const Shape& made) {
  std::size_t batch = 0;
  const std::size_t rank = std::min({a.size(), b.size(), made.size()});
  while (batch + 2 < rank && a[batch] == made[batch] && b[batch] == made[batch]) ++batch;
  const auto rest = [batch](const Shape& shape) { return elements(std::span(shape).subspan(batch)); };
  return elements(std::span(made).first(batch)) * std::sqrt(rest(a) * rest(b) * rest(made));
}

double work_of(const TraceOp& op) {
  std::vector<const Shape*> operands = operands_of(op);
  const Shape* made = nullptr;
  double touched = 0, most = 0;
  for (const TraceResult& result : op.results) {
    if (result.tensor.value == 0) continue;
    const Shape& sizes = result.tensor.view.sizes;
    touched += elements(sizes);
    if (made == nullptr || elements(sizes) > most) made = &sizes;
    most = std::max(most, elements(sizes));
  }
  for (const Shape* operand : operands) touched += elements(*operand);
  const bool elementwise =
      made == nullptr || op.results.size() > kResultsMax || operands.size() < 2 ||
      std::ranges::all_of(operands, [&](const Shape* operand) { return broadcasts_to(*operand, *made); });
  if (elementwise) return kOfAnOperation + touched;
  std::ranges::partial_sort(operands, operands.begin() + 2,
                            [](const Shape* x, const Shape* y) { return elements(*x) > elements(*y); });
  return kOfAnOperation + std::max(touched, product_work(*operands[0], *operands[1], *made));
}

}  // namespace

std::uint64_t estimated_audit_bytes(const Trace& target) {
  // The optimizer's elementwise chains are computed in tiles; what is left of some results there is a cotangent. Others
  // have their value in the replays of target and reference, of which some are computed again instead, and cotangents
  // of a few functionals, which die on the way. What was observed of each operation is decoded as well. (A step of a
  // Llama of 25 million parameters takes a third of this alone; a pair of differing programs up to nine tenths.)
  constexpr double kArrays = 2.5, kArraysOfOptimizer = 0.5, kArraysOfOutputs = 4;
  double arrays = 0;  // Elements of all.
  for (const TraceLeaf& leaf : target.leaves) arrays += static_cast<double>(leaf.count);
  for (const TraceOp& op : target.ops) {
    const double each = target.outputs                  ? kArraysOfOutputs
                        : op.phase == Phase::kOptimizer ? kArraysOfOptimizer
                                                        : kArrays;
    for (const TraceResult& result : op.results)
      if (result.tensor.value != 0) arrays += each * static_cast<double>(count(result.tensor.view.sizes));
  }
  return static_cast<std::uint64_t>(sizeof(double) * arrays) + target.payload_bytes();
}

double estimated_audit_work(const Trace& target) {
  double work = 0;
  for (const TraceOp& op : target.ops) work += work_of(op);
  return work;
}

absl::Status check_work_limit(double work, double limit) {
  if (work <= limit) return absl::OkStatus();
  char text[160];
  std::snprintf(text, sizeof text,
                "computing it takes about %.3g multiplications, more than the %.3g of --step-work-limit", work, limit);
  return absl::ResourceExhaustedError(text);
}

}  // namespace plumbline
