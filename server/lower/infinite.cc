#include "server/lower/infinite.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/primitive/absorb.h"

namespace plumbline {
namespace {

using primitive::kStandsForInfinity;

bool is_infinite(double x) { return std::fabs(x) > kStandsForInfinity && std::isfinite(x); }

}  // namespace

bool may_stand_for_infinity(const Node& node, const std::vector<bool>& infinite) {
  if (!is_float(node.result)) return false;
  switch (node.primitive) {
    using enum Primitive;
    case kConstant:
      return is_infinite(node.attributes.scalar);
    case kNeg:
    case kAbs:
    case kCast:
    case kAdd:
    case kSub:
    case kMul:
    case kMax:
    case kMin:
    case kSelect:
    case kWindow:
    case kAssemble:
    case kGatherRows:
      return std::ranges::any_of(node.inputs, [&](NodeId input) { return infinite[input]; });
    default:
      return false;
  }
}

bool stands_for_infinity(const GraphLeaf& leaf) {
  if (!is_float(leaf.format) || !leaf.bytes || largest_finite(leaf.format) < kStandsForInfinity) return false;
  const std::size_t bytes = static_cast<std::size_t>(traits(leaf.format).bytes), n = leaf.bytes->size() / bytes;
  std::array<double, 1024> x;
  for (std::size_t begin = 0; begin < n; begin += x.size()) {
    const std::size_t taken = std::min(x.size(), n - begin);
    decode(leaf.format, leaf.bytes->data() + begin * bytes, static_cast<std::int64_t>(taken), x.data());
    if (std::any_of(x.begin(), x.begin() + taken, is_infinite)) return true;
  }
  return false;
}

}  // namespace plumbline
