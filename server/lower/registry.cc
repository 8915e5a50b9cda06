#include "server/lower/registry.h"

#include <initializer_list>
#include <unordered_map>

namespace plumbline {
namespace {

using Table = std::unordered_map<std::string, Match>;

// Overloads of foreach operations; which of them exist depends on the operation, and others never occur.
constexpr std::string_view kForeachOverloads[] = {"default", "Scalar", "List", "ScalarList", "Tensor"};

void add_rule(Table& table, const Rule& rule) {
  const std::string name(rule.name);
  for (std::string_view overload : rule.overloads) {
    const std::string suffix = "." + std::string(overload);
    if (!(rule.variants & kOnlyInPlace)) table[name + suffix] = {&rule, overload, false, false};
    if (rule.variants & (kInPlace | kOnlyInPlace)) table[name + "_" + suffix] = {&rule, overload, true, false};
    if (rule.variants & kOut) table[name + suffix + "_out"] = {&rule, overload, true, false};
  }
  if (rule.variants & kOut) table[name + ".out"] = {&rule, rule.overloads[0], true, false};
  if (rule.variants & kForeach) {
    for (std::string_view overload : kForeachOverloads) {
      const std::string suffix = "." + std::string(overload);
      table["_foreach_" + name + suffix] = {&rule, overload, false, true};
      table["_foreach_" + name + "_" + suffix] = {&rule, overload, true, true};
    }
  }
}

Table table_of(std::initializer_list<std::span<const Rule>> families) {
  Table made;
  for (const auto family : families)
    for (const Rule& rule : family) add_rule(made, rule);
  return made;
}

const Table& table() {
  static const Table built = table_of({elementwise_rules(), activation_rules(),     piecewise_rules(),
                                       function_rules(),    reduce_rules(),         matmul_rules(),
                                       convolution_rules(), pool_rules(),           pad_rules(),
                                       resample_rules(),    grid_rules(),           recurrent_rules(),
                                       choice_rules(),      norm_rules(),           softmax_loss_rules(),
                                       attention_rules(),   index_rules(),          bag_rules(),
                                       mask_rules(),        count_rules(),          movement_rules(),
                                       factory_rules(),     optimizer_rules(),      quantize_rules(),
                                       special_rules(),     sign_rules(),           gamma_rules(),
                                       bessel_rules(),      copy_rules(),           linear_algebra_rules(),
                                       orthogonal_rules(),  spectral_rules(),       polynomial_rules(),
                                       packed_rules(),      attention_cuda_rules(), synchronized_norm_rules()});
  return built;
}

const Table& written_by_us() {
  static const Table built = table_of({collective_rules(), draw_rules(), slice_rules()});
  return built;
}

const Table& on_complex() {
  static const Table built = table_of({complex_rules(), complex_copy_rules(), fft_rules()});
  return built;
}

const Table& on_half_complex() {
  static const Table built = table_of({complex_copy_rules()});
  return built;
}

const Table& on_sparse() {
  static const Table built = table_of({sparse_rules()});
  return built;
}

const Table& with_generators() {
  static const Table built = table_of({attention_cuda_rules()});
  return built;
}

// What ends the names of operations on tensors of other kinds.
constexpr std::pair<std::string_view, const Table& (*)()> kKinds[] = {{" on complex64", on_complex},
                                                                      {" on complex128", on_complex},
                                                                      {" on complex32", on_half_complex},
                                                                      {" on sparse_coo", on_sparse},
                                                                      {" on uint64", with_generators}};

constexpr std::string_view kNamespace = "aten::", kOurs = "plumbline::";

Match find_in(const Table& rules, const std::string& name) {
  const auto found = rules.find(name);
  return found == rules.end() ? Match{} : found->second;
}

}  // namespace

Match find_rule(const std::string& operation) {
  if (operation.starts_with(kNamespace)) {
    const std::string name = operation.substr(kNamespace.size());
    for (const auto& [suffix, rules] : kKinds)
      if (name.ends_with(suffix)) return find_in(rules(), name.substr(0, name.size() - suffix.size()));
    return find_in(table(), name);
  }
  if (operation.starts_with(kOurs)) return find_in(written_by_us(), operation.substr(kOurs.size()));
  return {};
}

std::vector<std::pair<std::string, const Rule*>> all_operations() {
  std::vector<std::pair<std::string, const Rule*>> names;
  for (const auto& [name, match] : table()) names.emplace_back(std::string(kNamespace) + name, match.rule);
  for (const auto& [suffix, rules] : kKinds)
    for (const auto& [name, match] : rules())
      names.emplace_back(std::string(kNamespace) + name + std::string(suffix), match.rule);
  return names;
}

}  // namespace plumbline
