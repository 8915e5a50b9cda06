// The framework operations that lowering models: one row an operation, one file a family (aten_*.cc).
//
// To add an operation:
//   1. Pick the family's file and write `void lower_NAME(Call& call)`: read arguments by their schema names, write the
//      kernel's formula with the operators of emit.h (same order of operations), end with call.returns(output, node).
//   2. Add a row {"NAME", {overloads}, lower_NAME, variants} to the family's table: in-place, out= and foreach forms
//      follow from the flags, never from code of their own.
//   3. Throw through call.unsupported() for arguments that the formula does not cover: the operation becomes opaque.
//   4. Add a case with numbers worked out by hand to tests/unit/lower/, and a captured one to its Python cross-check.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/lower/call.h"

namespace plumbline {

enum Variants : unsigned {
  kFunctional = 0,
  kInPlace = 1,  // "NAME_", writes `self`.
  kOut = 2,      // "NAME.out" and "NAME.OVERLOAD_out".
  kForeach = 4,  // "_foreach_NAME" and "_foreach_NAME_".
  kOnlyInPlace = 8,
  // Common forms cannot be lowered (masks as indices, for one): results are asked for in any case.
  kObserved = 16,
  kPointwise = kInPlace | kOut | kForeach,
};

// kResult: the outcome, a side or an integer, is the result itself. kLastIndex: the last result holds the positions of
// chosen elements (Call::decides_index).
enum class DecisionKind { kNone = 0, kPositiveSide = 1, kResult = 2, kLastResult = 3, kLastIndex = 4 };

struct Rule {
  std::string_view name;                    // Without namespace, overload and trailing underscore.
  std::vector<std::string_view> overloads;  // "default" where there is but one.
  void (*lower)(Call&);
  unsigned variants = kFunctional;
  DecisionKind decision = DecisionKind::kNone;
};

// How an operation of the trace reaches its rule.
struct Match {
  const Rule* rule = nullptr;
  std::string_view overload;  // One of the rule's; foreach: the operation's own.
  bool writes_arguments = false;
  bool foreach = false;
};

// Null rule: not modelled.
Match find_rule(const std::string& operation);
// Every qualified name that find_rule knows, with its rule.
std::vector<std::pair<std::string, const Rule*>> all_operations();

std::span<const Rule> elementwise_rules();
std::span<const Rule> activation_rules();
std::span<const Rule> piecewise_rules();
std::span<const Rule> function_rules();
std::span<const Rule> special_rules();
std::span<const Rule> sign_rules();
std::span<const Rule> gamma_rules();
std::span<const Rule> bessel_rules();
std::span<const Rule> polynomial_rules();
std::span<const Rule> reduce_rules();
std::span<const Rule> matmul_rules();
std::span<const Rule> convolution_rules();
std::span<const Rule> pool_rules();
std::span<const Rule> pad_rules();
std::span<const Rule> recurrent_rules();
std::span<const Rule> packed_rules();
std::span<const Rule> resample_rules();
std::span<const Rule> grid_rules();
std::span<const Rule> norm_rules();
std::span<const Rule> synchronized_norm_rules();
std::span<const Rule> softmax_loss_rules();
std::span<const Rule> attention_rules();
// Also "NAME on uint64": generators of random numbers are held in that type, which nothing else is.
std::span<const Rule> attention_cuda_rules();
std::span<const Rule> index_rules();
std::span<const Rule> bag_rules();
std::span<const Rule> choice_rules();
std::span<const Rule> mask_rules();
std::span<const Rule> count_rules();
std::span<const Rule> movement_rules();
std::span<const Rule> copy_rules();
std::span<const Rule> linear_algebra_rules();
std::span<const Rule> orthogonal_rules();
std::span<const Rule> spectral_rules();
std::span<const Rule> factory_rules();
// "NAME on sparse_coo": the operations on tensors of coordinates.
std::span<const Rule> sparse_rules();
// "NAME on complex64" and "NAME on complex128": the operations on complex tensors. "NAME on complex32": copies alone.
std::span<const Rule> complex_rules();
std::span<const Rule> complex_copy_rules();
std::span<const Rule> fft_rules();
std::span<const Rule> optimizer_rules();
std::span<const Rule> quantize_rules();
// "plumbline::" in place of "aten::": what join.h writes for the collectives of several ranks.
std::span<const Rule> collective_rules();
// The same, of what the client writes for random draws, and for parts of data.
std::span<const Rule> draw_rules();
std::span<const Rule> slice_rules();

}  // namespace plumbline
