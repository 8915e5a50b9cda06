#include "server/bound/replay/python_numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace plumbline {
namespace {

constexpr double kHostRounding = 0x1p-50;  // A few operations in Python err by no more.

// A written number has at most so many decimal digits. A computed one has no more with a probability of some 1e-9 and
// 1e-6.
constexpr int kRatioDigits = 6, kWrittenDigits = 9;
bool few_digits(double x, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, x);
  return std::fabs(std::strtod(text, nullptr) - x) <= kHostRounding * std::fabs(x);
}

bool related(double a, double b) {
  return a != 0 && b != 0 && (few_digits(a / b, kRatioDigits) || few_digits(b / a, kRatioDigits));
}

// A product of two elements of 16 bits has no more binary digits.
bool few_bits(double x) {
  constexpr int kBits = 22;
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(x, &exponent), kBits);
  return scaled == std::trunc(scaled);
}

// A number that Python computed in its own doubles has more digits.
bool passed_fp32(double x) { return x == static_cast<double>(static_cast<float>(x)); }

// Whether it is a number that was read, or that times one of few digits.
bool handed_on(const Graph& graph, const PythonNumber& number) {
  return std::any_of(graph.reads.begin(), graph.reads.begin() + static_cast<std::ptrdiff_t>(number.reads),
                     [&](const NumberRead& read) { return related(number.value, read.value); });
}

bool is_narrow(Format format) {
  return is_float(format) && traits(format).precision < traits(Format::kFloat32).precision;
}

double relative_error(double read, double exact) {
  if (read == exact) return 0;
  const double error = std::fabs(read - exact) / std::fabs(exact);
  return std::isfinite(error) ? error : HUGE_VAL;
}

double constant(const Graph& graph, NodeId node) { return graph.nodes[node].attributes.scalar; }

std::set<std::uint64_t> bits_read(const Graph& graph) {
  std::set<std::uint64_t> bits;
  for (const NumberRead& read : graph.reads) bits.insert(std::bit_cast<std::uint64_t>(read.value));
  return bits;
}

}  // namespace

std::vector<double> read_errors(const Graph& graph, const Replay& exact, const Graph* other) {
  const std::set<std::uint64_t> theirs = other == nullptr ? std::set<std::uint64_t>() : bits_read(*other);
  std::vector<double> error{0};
  for (const NumberRead& read : graph.reads) {
    const bool same = theirs.count(std::bit_cast<std::uint64_t>(read.value)) != 0;
    const double off = same ? 0 : relative_error(read.value, exact.value(read.node).materialize().item());
    const bool rounds = is_float(read.computes) && read.computes != Format::kFloat64;  // What it computes.
    error.push_back(std::max({error.back(), off, rounds ? unit_roundoff(read.computes) : 0}));
  }
  return error;
}

Uncertainty uncertain_numbers(const Graph& graph, const Replay& exact, const Graph* other) {
  if (graph.python_numbers.empty()) return {};
  std::set<std::uint64_t> their_constants;  // Bits.
  std::vector<double> their_numbers;
  if (other != nullptr) {
    for (const Node& node : other->nodes)
      if (node.primitive == Primitive::kConstant || node.primitive == Primitive::kVarianceRsqrt)
        their_constants.insert(std::bit_cast<std::uint64_t>(node.attributes.scalar));
    for (const PythonNumber& number : other->python_numbers) their_numbers.push_back(number.value);
  }
  const std::vector<double> error = read_errors(graph, exact, other);
  std::vector<bool> narrow{false};
  for (const NumberRead& read : graph.reads)
    narrow.push_back(narrow.back() || is_narrow(graph.nodes[read.node].result));
  Uncertainty uncertain;
  for (const PythonNumber& number : graph.python_numbers) {
    const double value = number.value;
    const bool by_numpy = passed_fp32(value) && !handed_on(graph, number);
    const double off = std::fmax(error[number.reads], by_numpy ? unit_roundoff(Format::kFloat32) : 0);
    if (off == 0 || value == 0 || !std::isfinite(value)) continue;
    if (few_digits(value, kWrittenDigits) && !(narrow[number.reads] && few_bits(value))) continue;
    if (their_constants.count(std::bit_cast<std::uint64_t>(constant(graph, number.node))) != 0) continue;
    if (std::ranges::any_of(their_numbers, [&](double theirs) { return related(value, theirs); })) continue;
    uncertain[number.node] = kAmplification * off * std::fabs(value);
  }
  return uncertain;
}

void note_numbers(const Graph& graph, const Uncertainty& numbers, bool in_reference,
                  std::vector<UncertainNumber>* noted) {
  for (const auto& [node, uncertainty] : numbers)
    noted->push_back({node, graph.nodes[node].attributes.scalar, uncertainty, in_reference});
}

std::vector<bool> reached_by(const std::vector<NodeId>& from, const Graph& graph) {
  std::vector<bool> reached(graph.nodes.size(), false);
  for (NodeId id : from) reached[id] = true;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    for (NodeId input : graph.nodes[id].inputs) reached[id] = reached[id] || reached[input];
  }
  return reached;
}

}  // namespace plumbline
