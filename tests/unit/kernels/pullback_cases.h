// Cotangents and charges of short chains: in one pass (kernels/pullback.h), and node by node through the registry.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <vector>

#include "kernels/operations.h"
#include "kernels/sums.h"
#include "tests/unit/kernels/cuda_cases.h"

namespace plumbline::testing {

// What a chain of four steps hands back: y = f(x...), y w with one number a column, y w + y, and that less a number.
// What two functionals give: the first asks of the target's roundings and has a cotangent at y too, the second of our
// own.
struct Pulled {
  std::vector<std::vector<Charges>> charges;   // Indices are functional and step.
  std::vector<std::vector<Array>> cotangents;  // Indices are functional and source; arrays have the sources' shapes.
  std::vector<std::vector<Array>> at_steps;    // Indices are functional and step.
};

struct PulledChain {
  PulledChain(const Case& c, const Profile& profile, std::uint64_t seed)
      : shape(c.shape), target{Format::kFloat32, Format::kBFloat16, &profile} {
    std::mt19937_64 rng(seed);
    sources = c.inputs;
    const std::size_t column = sources.size();
    sources.push_back(random_array(rng, {shape.empty() ? 1 : shape.back()}, -1, 1));
    sources.push_back(Array::scalar(0.3));
    nodes.push_back({c.primitive, c.attributes, {}});
    for (std::size_t i = 0; i < column; ++i) nodes[0].inputs.push_back(i);
    const std::size_t y = sources.size();
    nodes.push_back({Primitive::kMul, {}, {y, column}});
    nodes.push_back({Primitive::kAdd, {}, {y + 1, y}});
    nodes.push_back({Primitive::kSub, {}, {y + 2, column + 1}});
    for (int p = 0; p < 2; ++p) {
      seeds.push_back(std::vector<Array>(nodes.size()));
      seeds.back().back() = random_array(rng, shape, -1, 1);
    }
    seeds[0][0] = random_array(rng, shape, -1, 1);
    before = random_array(rng, sources[0].shape(), -1, 1);  // What the first source holds already.
  }

  struct Node {
    Primitive primitive;
    Attributes attributes;
    std::vector<std::size_t> inputs;  // Indices count the sources, then the nodes.
  };
  Shape shape;
  Arithmetic target, own = host_operations().arithmetic;  // Every backend has it, so that they may be compared.
  std::vector<Array> sources;
  std::vector<Node> nodes;
  std::vector<std::vector<Array>> seeds;  // Indices are functional and node.
  Array before;
};

inline std::vector<Case> elementwise_cases(std::uint64_t seed) {
  std::vector<Case> result;
  for (auto&& more : {cases(seed), large_cases(seed + 1), random_cases(seed + 2, 8)})
    std::ranges::copy_if(more, std::back_inserter(result), [](const Case& c) { return is_elementwise(c.primitive); });
  return result;
}

// Visits every elementwise case, with and without flushing.
inline void for_each_chain(std::uint64_t seed, const std::function<void(const PulledChain&)>& body) {
  Profile flushing = ieee();
  flushing.flush_subnormals = true;
  for (const Case& c : elementwise_cases(seed))
    for (const Profile& profile : {ieee(), flushing}) {
      SCOPED_TRACE(c.name);
      body(PulledChain(c, profile, seed));
    }
}

inline Pulled pulled_by_nodes(const PulledChain& chain) {
  const std::size_t sources = chain.sources.size();
  std::vector<Array> values = chain.sources;
  for (const PulledChain::Node& node : chain.nodes) {
    std::vector<Array> inputs;
    for (std::size_t input : node.inputs) inputs.push_back(values[input]);
    values.push_back(traits(node.primitive).evaluate(node.attributes, chain.shape, inputs));
  }
  Pulled pulled;
  for (std::size_t p = 0; p < chain.seeds.size(); ++p) {
    std::vector<Array> cotangents(values.size());
    const Operations& operations = current_operations();
    operations.add_summed(cotangents[0], chain.before.shape(), chain.before);
    for (std::size_t s = 0; s < chain.nodes.size(); ++s)
      if (chain.seeds[p][s]) operations.add_summed(cotangents[sources + s], chain.shape, chain.seeds[p][s]);
    std::vector<Charges> charges(chain.nodes.size());
    std::vector<Array> at_steps(chain.nodes.size());
    for (std::size_t s = chain.nodes.size(); s-- > 0;) {
      const PulledChain::Node& node = chain.nodes[s];
      const PrimitiveTraits& row = traits(node.primitive);
      const Array cotangent = cotangents[sources + s], value = values[sources + s];
      std::vector<Array> inputs;
      std::vector<Array*> into;
      for (std::size_t input : node.inputs) {
        inputs.push_back(values[input]);
        into.push_back(&cotangents[input]);
      }
      at_steps[s] = cotangent;
      const auto charge = [&](const Arithmetic& arithmetic) -> Charge {
        const Bound error = row.local_error(node.attributes, arithmetic, inputs, value);
        if (!error) return {};
        return row.charges(node.attributes, arithmetic, inputs, value, error, {&cotangent, 1}).get().front();
      };
      if (p == 0) charges[s].target = charge(chain.target);
      charges[s].own = charge(chain.own);
      if (p == 0) charges[s].own.noise = {};
      row.pull_back(node.attributes, inputs, value, cotangent, into);
    }
    cotangents.resize(sources);
    pulled.charges.push_back(std::move(charges));
    pulled.cotangents.push_back(std::move(cotangents));
    pulled.at_steps.push_back(std::move(at_steps));
  }
  return pulled;
}

// `parts`: into how many the elements are cut.
inline Pulled pulled_in_one_pass(const PulledChain& chain, int parts) {
  const std::size_t sources = chain.sources.size();
  const std::int64_t n = count(chain.shape);
  const Operations& operations = current_operations();
  Pullback pullback;
  std::vector<Chain::Source> chain_sources;
  for (const Array& x : chain.sources) {
    pullback.sources.push_back(Pullback::source_of(x, chain.shape));
    chain_sources.push_back({pullback.sources.back().count() == 1, false});
  }
  pullback.chain = Chain(chain_sources, false);
  std::vector<std::size_t> ends;
  for (const PulledChain::Node& node : chain.nodes) {
    ends.push_back(sources + ends.size());
    pullback.chain.add(node.primitive, node.attributes, node.inputs, {});
    const auto rounding = [&](const Arithmetic& arithmetic) {
      return primitive::rounding_of(node.primitive, node.attributes, arithmetic);
    };
    pullback.steps.push_back({rounding(chain.target), rounding(chain.own)});
  }
  pullback.chain.ask(ends);
  std::vector<PulledFunctional> functionals;
  for (std::size_t p = 0; p < chain.seeds.size(); ++p) {
    PulledFunctional& functional = functionals.emplace_back();
    functional.of_target = p == 0;
    functional.own_by_chance = p == 1;
    functional.seeds = chain.seeds[p];
    functional.reach(pullback.chain);
    for (std::size_t s = 0; s < chain.nodes.size(); ++s)
      functional.shown.push_back(s + 1 == chain.nodes.size() ? functional.seeds[s] : Array::uninitialized(chain.shape));
    for (std::size_t i = 0; i < sources; ++i) {
      PulledFunctional::Target& into = functional.into.emplace_back();
      into.asked = functional.reached[i];
      if (into.asked && pullback.one(i) && parts == 1) into.cotangent = Array::uninitialized({1});
      if (!into.asked || pullback.one(i)) continue;
      into.cotangent = Array::uninitialized(chain.shape);
      into.add = i == 0 && chain.sources[0].count() == n;
      if (into.add) operations.copy(into.cotangent, chain.before.reshape(chain.shape));
    }
  }
  const std::vector<Array> errors(chain.nodes.size());
  std::vector<PulledBack> found(functionals.size());
  for (int part = 0; part < parts; ++part) {
    const std::int64_t begin = n * part / parts, end = n * (part + 1) / parts;
    const std::vector<PulledBack> pulled = pull_back(pullback, functionals, errors, begin, end - begin);
    for (std::size_t p = 0; p < found.size(); ++p) found[p].add(pulled[p]);
  }
  Pulled pulled;
  for (std::size_t p = 0; p < functionals.size(); ++p) {
    std::vector<Array> cotangents(sources);
    for (std::size_t i = 0; i < sources; ++i) {
      const PulledFunctional::Target& into = functionals[p].into[i];
      const Shape& shape = chain.sources[i].shape();
      if (i == 0 && !into.add) operations.add_summed(cotangents[i], shape, chain.before);
      if (!into.asked) continue;
      Array handed = into.cotangent ? into.cotangent : Array::full(shape, found[p].sources[i]);
      if (pullback.one(i)) handed = handed.reshape(shape);
      operations.add_summed(cotangents[i], shape, handed);
    }
    pulled.charges.push_back(found[p].steps);
    pulled.cotangents.push_back(std::move(cotangents));
    pulled.at_steps.push_back(functionals[p].shown);
  }
  return pulled;
}

// The largest distance of two arrays over the largest element; infinite where one is finite alone, or empty.
inline double apart(const Array& a, const Array& b) {
  if (!a || !b) return static_cast<bool>(a) == static_cast<bool>(b) ? 0 : HUGE_VAL;
  const Array x = a.on_host(), y = b.on_host();
  double largest = 1e-300, distance = 0;
  for (std::int64_t i = 0; i < y.count(); ++i) {
    const double p = x.data()[i], q = y.data()[i];
    if (p == q || (p != p && q != q)) continue;
    if (!std::isfinite(p) || !std::isfinite(q)) return HUGE_VAL;
    distance = std::max(distance, std::fabs(p - q));
  }
  for (std::int64_t i = 0; i < y.count(); ++i)
    if (std::isfinite(y.data()[i])) largest = std::max(largest, std::fabs(y.data()[i]));
  return distance / largest;
}

// The difference of the whole and of both parts of the noise, relative to the whole; that of squares, to their own
// size.
inline double apart(const Charge& a, const Charge& b) {
  const auto near = [](double x, double y, double scale) {
    if (x == y || (x != x && y != y)) return 0.0;
    return std::isfinite(x) && std::isfinite(y) ? std::fabs(x - y) / (std::fabs(scale) + 1e-300) : HUGE_VAL;
  };
  const double scale = b.whole;
  return std::max({near(a.whole, b.whole, scale), near(a.noise.bias, b.noise.bias, scale),
                   near(a.noise.drift, b.noise.drift, scale), near(a.noise.squares, b.noise.squares, b.noise.squares)});
}

inline void expect_near(const Pulled& found, const Pulled& expected) {
  for (std::size_t p = 0; p < expected.charges.size(); ++p) {
    for (std::size_t s = 0; s < expected.charges[p].size(); ++s) {
      // Either adds 2^-20 for the roundings of its own additions.
      EXPECT_LT(testing::apart(found.charges[p][s].target, expected.charges[p][s].target), 1e-5) << p << ", step " << s;
      EXPECT_LT(testing::apart(found.charges[p][s].own, expected.charges[p][s].own), 1e-5) << p << ", step " << s;
      EXPECT_LT(testing::apart(found.at_steps[p][s], expected.at_steps[p][s]), 1e-12) << p << ", step " << s;
    }
    for (std::size_t i = 0; i < expected.cotangents[p].size(); ++i)
      EXPECT_LT(testing::apart(found.cotangents[p][i], expected.cotangents[p][i]), 1e-12) << p << ", source " << i;
  }
}

}  // namespace plumbline::testing
