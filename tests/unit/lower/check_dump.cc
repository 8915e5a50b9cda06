// Replays a captured step and says how far each operation's observed result lies from the replay.
// usage: check_dump FILE  (varint-delimited AuditRequest messages, StepBegin to StepEnd, as plumbline.dump writes them)
//        check_dump --operations  (names of all that some rule models, one a line)
//
// Prints one JSON object: operations, opaque names, and by operation name the largest deviation over all its results,
// relative to the largest magnitude of the result: "local" from the operation's observed inputs, "whole" from the
// step's leaves alone, "rounded" from observed inputs with every node rounded to its format, and "wide": how far the
// fp64 replay from the leaves lies from the wide replay that takes its decisions.
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <set>

#include "kernels/wide/compare.h"
#include "server/bound/replay/decided.h"
#include "server/bound/replay/replay.h"
#include "server/bound/replay/wide_replay.h"
#include "server/ingest/assembler.h"
#include "server/lower/lower.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

std::shared_ptr<const Trace> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::string(path) + ": cannot be read");
  google::protobuf::io::IstreamInputStream stream(&file);
  TraceAssembler::Options options;
  options.run = {"p", "j", "r", 0, 0};
  TraceAssembler assembler(options);
  v1::AuditRequest frame;
  bool clean_end = false;
  while (google::protobuf::util::ParseDelimitedFromZeroCopyStream(&frame, &stream, &clean_end)) {
    const auto result = assembler.add(frame);
    frame.Clear();  // The parser adds to what is there.
    if (result.progress == TraceAssembler::Progress::kStepDone) return assembler.take_step().trace;
    if (result.progress != TraceAssembler::Progress::kTaken)
      throw std::runtime_error(result.violation.field + ": " + result.violation.description);
  }
  throw std::runtime_error("the file ends before the step does");
}

Array decoded(const Observation& observation, const Shape& shape) {
  Array array = Array::uninitialized(shape);
  decode(observation.format, observation.bytes->data(), array.count(), array.data());
  return array;
}

// Largest |a - b| over largest |b|; equal non-finite values agree, others deviate infinitely.
double deviation(const Array& found, const Array& expected) {
  const Array a = found.materialize(), b = expected.materialize();
  double largest = 0, scale = 0;
  for (std::int64_t i = 0; i < b.count(); ++i) {
    const double x = a.data()[i], y = b.data()[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return INFINITY;
    largest = std::max(largest, std::fabs(x - y));
  }
  for (std::int64_t i = 0; i < b.count(); ++i)
    if (std::isfinite(b.data()[i])) scale = std::max(scale, std::fabs(b.data()[i]));
  return largest == 0 ? 0 : largest / std::max(scale, 1e-300);
}

using Deviations = std::map<std::string, double>;

void note(Deviations& deviations, const Graph& graph, NodeId node, double value) {
  double& worst = deviations[graph.origins[graph.nodes[node].origin].op];
  if (!(value <= worst)) worst = value;
}

void print(const char* name, const Deviations& deviations) {
  std::cout << ", \"" << name << "\": {";
  const char* separator = "";
  for (const auto& [op, value] : deviations) {
    std::cout << separator << '"' << op << "\": " << (std::isfinite(value) ? value : 1e308);
    separator = ", ";
  }
  std::cout << "}";
}

int check(const char* path) {
  const auto trace = read(path);
  const Graph graph = lower(*trace);
  const std::vector<LeafValue> leaves = leaf_values(graph);

  const auto [whole, decisions] = follow_decisions(graph, leaves, Profile());
  Overrides observed;
  for (const auto& [node, observation] : graph.observed) observed[node] = decoded(observation, graph.nodes[node].shape);
  const Replay local = replay(graph, leaves, Precision::kExact, observed);
  const Replay rounded = replay(graph, leaves, Precision::kRounded, observed);

  std::vector<NodeId> wanted;
  for (const auto& [node, array] : observed) wanted.push_back(node);
  const WideReplay wide = wide_replay(graph, leaves, shared_decisions(graph, whole, wanted), wanted);

  Deviations by_local, by_whole, by_rounded, by_wide;
  for (const auto& [node, array] : observed) {
    note(by_local, graph, node, deviation(local.computed(node), array));
    note(by_rounded, graph, node, deviation(rounded.computed(node), array));
    note(by_whole, graph, node, deviation(whole.value(node), array));
    if (wide) note(by_wide, graph, node, deviation(whole.value(node), wide::rounded(wide.value(node))));
  }
  std::cout << "{\"operations\": " << graph.coverage.operations << ", \"nodes\": " << graph.nodes.size()
            << ", \"decisions\": " << decisions.total << ", \"opaque\": [";
  const char* separator = "";
  for (const auto& [name, times] : graph.coverage.opaque_names) {
    std::cout << separator << '"' << name << '"';
    separator = ", ";
  }
  std::cout << "]";
  print("local", by_local);
  print("whole", by_whole);
  print("rounded", by_rounded);
  print("wide", by_wide);
  std::cout << "}\n";
  return 0;
}

}  // namespace
}  // namespace plumbline

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: check_dump FILE|--operations\n";
    return 2;
  }
  if (arguments[1] == std::string("--operations")) {
    for (const auto& [name, rule] : plumbline::all_operations()) std::cout << name << "\n";
    return 0;
  }
  try {
    return plumbline::check(arguments[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
