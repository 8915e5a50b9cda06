#include "server/bound/replay/constants.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "server/lower/emit.h"

namespace plumbline {
namespace {

bool is_number(const Node& node) {
  return (node.primitive == Primitive::kConstant || node.primitive == Primitive::kVarianceRsqrt) &&
         !std::isnan(node.attributes.scalar);
}

// As a kernel of this format takes it: beside elements of 16 bits in fp32. Some loops round it to the elements' own
// format, which is charged. What its format does not hold stays as written, and is the range's affair.
double taken(Format format, double written) {
  if (!is_float(format) || !std::isfinite(written)) return written;
  const double rounded = round_to(compute_format(format), written);
  return std::isfinite(rounded) ? rounded : written;
}

double taken(const Node& node) {
  const double written = node.attributes.scalar;
  return is_float(node.result) ? taken(node.compute, written) : written;
}

// A formula's own number may be another in the kernel, by as much as it was moved; in fp64 it is that number.
void replace(Graph* graph, NodeId id, double number, bool own) {
  Node& node = graph->nodes[id];
  Attributes& attributes = node.attributes;
  if (own && node.primitive == Primitive::kConstant && node.compute != Format::kFloat64)
    attributes.scalar2 = std::fabs(attributes.scalar - number);
  attributes.scalar = number;
}

// Digits of the shortest decimal number that reads as x.
int digits(double x) {
  char text[32];
  int found = 1;
  for (; found < 17; ++found) {
    std::snprintf(text, sizeof text, "%.*g", found, x);
    if (std::strtod(text, nullptr) == x) break;
  }
  return found;
}

// What is written for a rounded number, and whether a leaf of one element holds it.
struct Written {
  SetOfNumbers numbers;
  bool held = false;
};
using Numbers = std::map<double, Written, NumberOrder>;

Numbers numbers_of(const Graph& graph) {
  Numbers numbers;
  for (const Node& node : graph.nodes)
    if (is_number(node)) numbers[taken(node)].numbers.insert(node.attributes.scalar);
  for (const Draw& draw : graph.draws)
    for (const Draw::Parameter& parameter : draw.place)
      if (!parameter.node && !std::isnan(parameter.number))
        numbers[taken(graph.nodes[draw.leaf].result, parameter.number)].numbers.insert(parameter.number);
  for (const GraphLeaf& leaf : graph.leaves) {
    if (!leaf.bytes || !is_float(leaf.format) || count(graph.nodes[leaf.node].shape) != 1) continue;
    double value = 0;
    decode(leaf.format, leaf.bytes->data(), 1, &value);
    numbers[value].held = true;
  }
  return numbers;
}

// What `written`, taken as `number`, is replayed as.
double shared_number(const Numbers& ours, const Numbers& theirs, double number, double written) {
  const auto other = theirs.find(number);
  if (other == theirs.end()) return written;
  Written all = ours.at(number);
  all.numbers.insert(other->second.numbers.begin(), other->second.numbers.end());
  all.held = all.held || other->second.held;
  return all.held ? number : *std::ranges::min_element(all.numbers, {}, digits);
}

void settle(Graph* graph, const Numbers& ours, const Numbers& theirs) {
  const std::set<NodeId> arguments(graph->arguments.begin(), graph->arguments.end());
  for (NodeId id = 0; id < graph->nodes.size(); ++id) {
    const Node& node = graph->nodes[id];
    if (!is_number(node)) continue;
    const double shared = shared_number(ours, theirs, taken(node), node.attributes.scalar);
    if (shared == node.attributes.scalar) continue;
    replace(graph, id, shared, arguments.count(id) == 0);
    graph->rounded_numbers = true;
  }
  for (Draw& draw : graph->draws)
    for (Draw::Parameter& parameter : draw.place)
      if (!parameter.node && !std::isnan(parameter.number))
        parameter.number =
            shared_number(ours, theirs, taken(graph->nodes[draw.leaf].result, parameter.number), parameter.number);
}

}  // namespace

void settle_constants(Graph* target, Graph* reference) {
  if (reference == nullptr) {
    for (NodeId id : target->arguments) replace(target, id, taken(target->nodes[id]), false);
    return;
  }
  const Numbers ours = numbers_of(*target), theirs = numbers_of(*reference);
  settle(target, ours, theirs);
  settle(reference, theirs, ours);
}

}  // namespace plumbline
