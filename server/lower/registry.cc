#include "server/lower/registry.h"

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

const Table& table() {
  static const Table built = [] {
    Table made;
    for (const auto family :
         {elementwise_rules(), activation_rules(),  piecewise_rules(), function_rules(), reduce_rules(),
          matmul_rules(),      convolution_rules(), pool_rules(),      pad_rules(),      resample_rules(),
          grid_rules(),        recurrent_rules(),   choice_rules(),    norm_rules(),     softmax_loss_rules(),
          attention_rules(),   index_rules(),       bag_rules(),       mask_rules(),     movement_rules(),
          factory_rules(),     optimizer_rules(),   quantize_rules()})
      for (const Rule& rule : family) add_rule(made, rule);
    return made;
  }();
  return built;
}

const Table& collectives() {
  static const Table built = [] {
    Table made;
    for (const Rule& rule : collective_rules()) add_rule(made, rule);
    return made;
  }();
  return built;
}

constexpr std::string_view kNamespace = "aten::", kCollectives = "plumbline::";

Match find_in(const Table& rules, const std::string& name) {
  const auto found = rules.find(name);
  return found == rules.end() ? Match{} : found->second;
}

}  // namespace

Match find_rule(const std::string& operation) {
  if (operation.starts_with(kNamespace)) return find_in(table(), operation.substr(kNamespace.size()));
  if (operation.starts_with(kCollectives)) return find_in(collectives(), operation.substr(kCollectives.size()));
  return {};
}

std::vector<std::pair<std::string, const Rule*>> all_operations() {
  std::vector<std::pair<std::string, const Rule*>> names;
  for (const auto& [name, match] : table()) names.emplace_back(std::string(kNamespace) + name, match.rule);
  return names;
}

}  // namespace plumbline
