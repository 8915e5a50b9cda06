// "plumbline::draw": what a random leaf was drawn from. The numbers themselves are content of the leaf; their
// distribution is mathematics.
#include <algorithm>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

struct Family {
  std::string_view operation;  // Its base, without a trailing underscore.
  std::string_view name;
  // Its parameters, in order, and what they are where they are not given.
  std::vector<std::pair<std::string_view, double>> numbers;
};

const Family* family_of(std::string_view operation) {
  static const std::vector<Family> kFamilies = {
      {"randn", "normal", {{"mean", 0}, {"std", 1}}},
      {"randn_like", "normal", {{"mean", 0}, {"std", 1}}},
      {"normal", "normal", {{"mean", 0}, {"std", 1}}},
      {"normal_functional", "normal", {{"mean", 0}, {"std", 1}}},
      {"rand", "uniform", {{"from", 0}, {"to", 1}}},
      {"rand_like", "uniform", {{"from", 0}, {"to", 1}}},
      {"uniform", "uniform", {{"from", 0}, {"to", 1}}},
      {"bernoulli", "bernoulli", {{"p", 0.5}}},
      {"randint", "integers", {{"low", 0}, {"high", 0}}},
      {"randint_like", "integers", {{"low", 0}, {"high", 0}}},
      {"log_normal", "log_normal", {{"mean", 1}, {"std", 2}}},
      {"exponential", "exponential", {{"lambd", 1}}},
      {"cauchy", "cauchy", {{"median", 0}, {"sigma", 1}}},
      {"geometric", "geometric", {{"p", 0}}},
      {"multinomial", "multinomial", {{"replacement", 0}}},
  };
  if (operation.ends_with('_')) operation.remove_suffix(1);
  const auto found = std::ranges::find(kFamilies, operation, &Family::operation);
  return found == kFamilies.end() ? nullptr : &*found;
}

void lower_draw(Call& call) {
  Graph& graph = call.emitter().graph();
  Draw draw;
  draw.origin = static_cast<std::uint32_t>(graph.origins.size() - 1);
  const std::string operation = call.text("operation", ""), leaf = call.text("leaf", "");
  graph.origins.back().op = "aten::" + operation;
  const auto node = std::ranges::find(graph.leaves, leaf, &GraphLeaf::name);
  if (node == graph.leaves.end() || node->role != LeafRole::kRandom) return;
  draw.leaf = node->node;
  draw.family = operation;
  const bool chances = operation == "bernoulli" && !call.has("p");  // Those are what it is called with.
  if (const Family* family = family_of(operation)) {
    draw.family = family->name;
    for (const auto& [name, otherwise] : family->numbers) {
      if (chances || call.is_tensor(name)) {  // Among the tensors.
        draw.place.push_back({call.tensor(chances ? "self" : name).id, 0});
        continue;
      }
      draw.numbers.push_back(call.known_number(name).value_or(otherwise));
      draw.place.push_back({std::nullopt, draw.numbers.back()});
    }
    if (draw.family != "normal" && draw.family != "uniform" && draw.family != "bernoulli") draw.place.clear();
    // Dropout names what it leaves out, Bernoulli what it keeps.
  } else if (operation == "native_dropout") {
    draw.family = "bernoulli";
    draw.numbers.push_back(1 - call.known_number("p").value_or(0));
    draw.place.push_back({std::nullopt, draw.numbers.back()});
  }
  const bool shaped = operation == "bernoulli" && !chances;  // By what it is called with, which it does not read.
  for (const TraceArgument& argument : call.op().arguments)
    if (const auto* tensor = std::get_if<TensorRef>(&argument.value);
        tensor != nullptr && tensor->value != 0 && !(shaped && argument.name == "self"))
      draw.inputs.push_back(call.tensor(argument.name).id);
  graph.nodes[draw.leaf].origin = draw.origin;
  graph.draws.push_back(std::move(draw));
}

}  // namespace

std::span<const Rule> draw_rules() {
  static const Rule kRules[] = {{"draw", {"default"}, lower_draw}};
  return kRules;
}

}  // namespace plumbline
