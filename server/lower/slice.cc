// "plumbline::slice": where a part of data was taken. The window itself is the same for all that read it; it is made
// here, with the line of the view as its origin.
#include "server/lower/registry.h"

namespace plumbline {
namespace {

void lower_slice(Call& call) {
  Graph& graph = call.emitter().graph();
  graph.origins.back().op = call.text("operation", "");
  const Expr part = call.tensor("self");
  if (graph.nodes[part.id].primitive == Primitive::kWindow) graph.parts.push_back(part.id);
}

}  // namespace

std::span<const Rule> slice_rules() {
  static const Rule kRules[] = {{"slice", {"default"}, lower_slice}};
  return kRules;
}

}  // namespace plumbline
