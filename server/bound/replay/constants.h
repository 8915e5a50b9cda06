// Numbers that a program gave to its operations, as their kernels take them: rounded to the format in which the
// operation computes. Integers and numbers of few binary digits are that already.
//
// One program alone is replayed with the rounded numbers. Where two programs have numbers that differ as written but
// are one number after rounding (1.44269504 and log2(e), 1 - 0.9 and 0.1) both are replayed as the one of them that has
// the fewest digits, or as a leaf of one element that holds it (torch.tensor(0.1)). They are not rounded: a program
// that multiplies by 0.1 and then by 0.2 is one that multiplies by 0.02, which their roundings are not. What the
// kernel's rounding then costs is charged where the number is used. Numbers that only one program has stay as written.
#pragma once

#include <compare>
#include <set>

#include "server/lower/graph.h"

namespace plumbline {

// Orders by value, with NaN after all numbers: std::less is no order where a program has NaN among its constants.
struct NumberOrder {
  bool operator()(double a, double b) const { return std::weak_order(a, b) < 0; }
};
using SetOfNumbers = std::set<double, NumberOrder>;

// `reference`: null where there is none.
void settle_constants(Graph* target, Graph* reference);

}  // namespace plumbline
