// What crossed between nodes, from what all of them say of it: whether each call is one on all ranks, and whether what
// a rank got is what the others sent: copies by fingerprints, sums within what rounding in any order explains
// (sketch.h). No state, no threads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plumbline/v1/node_part.pb.h"
#include "server/ingest/trace.h"

namespace plumbline {

struct CrossingsChecked {
  // The first result, in the order of the program, that is not what was sent; or calls that do not belong together.
  struct Wrong {
    std::string op, source, sentence, detail, tap;
    bool contradiction = false;  // The ranks make different calls.
    double deviation = 0, allowed = 0;
  };
  std::optional<Wrong> wrong;
  std::string fault, fault_source;  // A rank lacks a call that others of its group made; empty: none does.

  std::uint64_t results = 0, compared = 0;            // Of calls with ranks on several nodes, what ranks got from them.
  std::map<std::string, std::uint64_t> not_compared;  // How many, by why not.
  bool in_full = true;                                // What was compared was so bit by bit, or element by element.
  // The smallest error of one element, relative to the sum of magnitudes of what was reduced, that is found for certain
  // in every result that was compared; NaN: none was reduced.
  double resolution = 0;
  double of_mean = 0;                // The same, relative to the mean magnitude of what was reduced.
  std::vector<v1::TapVerdict> taps;  // Of each sum that was compared; the closest ones, at most kTapsMax.
  static constexpr std::size_t kTapsMax = 64;
};

// `parts`: of one step and no rank twice. What is not as make_part() writes it counts as not compared.
CrossingsChecked check_crossings(const StepIdentity& step, const std::vector<v1::NodePart>& parts);

}  // namespace plumbline
