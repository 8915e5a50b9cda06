// Builds small graphs by hand.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "server/lower/graph.h"

namespace plumbline::test {

// So many normal numbers that fp32 holds.
std::vector<double> normal(std::mt19937& rng, std::int64_t n);

Bytes encoded(Format format, const std::vector<double>& values);

class GraphBuilder {
 public:
  GraphBuilder();
  // A leaf with content; role DATA unless named.
  NodeId leaf(Shape shape, const std::vector<double>& values, Format format = Format::kFloat32,
              const std::string& name = "", LeafRole role = LeafRole::kData);
  // A node of its own origin ("op:INDEX").
  NodeId op(Primitive primitive, std::vector<NodeId> inputs, Shape shape, Format format = Format::kFloat32,
            Attributes attributes = {});
  NodeId sum_all(NodeId input, Format format = Format::kFloat32);
  void tap(const std::string& name, TapKind kind, NodeId node, const std::vector<double>& observed);
  Graph graph;
};

}  // namespace plumbline::test
