#include "client/cpp/alignment_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/cpp/text_table.h"

namespace plumbline {
namespace {

constexpr int kAround = 2;  // Operations told on each side of where the programs part.

std::string operation_cell(bool there, const v1::Place& place) {
  if (!there) return "(nothing)";
  return printable(place.source().empty() ? place.op() : absl::StrCat(place.source(), " ", place.op()));
}

std::string what(const v1::AlignedOperation& operation) {
  if (operation.has_target() && operation.has_reference()) {
    if (std::isinf(operation.allowed()) && operation.deviation() > 0) return "open";
    return operation.deviation() <= operation.allowed() ? "agree" : "differ";
  }
  return operation.elsewhere() ? "elsewhere" : "alone";
}

// Lines that a terminal of 40 columns holds.
std::string counts(const v1::Alignment& alignment) {
  std::string text = absl::StrCat("  ", alignment.agree(), " agree, ", alignment.differ(), " differ\n");
  if (alignment.target_alone() > 0) absl::StrAppend(&text, "  ", alignment.target_alone(), " the target's alone\n");
  if (alignment.reference_alone() > 0) {
    absl::StrAppend(&text, "  ", alignment.reference_alone(), " the reference's alone\n");
  }
  return text;
}

}  // namespace

std::string alignment_text(const v1::Alignment& alignment, const TextStyle& style) {
  if (alignment.operations_size() == 0) return "";
  const int parts = alignment.has_parts() ? static_cast<int>(alignment.parts()) : -1;
  const int first = style.all ? 0 : std::max(0, parts - kAround);
  const int end =
      style.all ? alignment.operations_size() : std::min(alignment.operations_size(), std::max(parts, 0) + kAround + 1);
  TextTable table(
      {"target", "reference", "programs", ">deviation", ">rounding explains", ">target's", ">reference's", ">drift"});
  for (int i = first; i < end; ++i) {
    const v1::AlignedOperation& operation = alignment.operations(i);
    table.add({operation_cell(operation.has_target(), operation.target()),
               operation_cell(operation.has_reference(), operation.reference()),
               i == parts ? "part here" : what(operation), number(operation.deviation()), number(operation.allowed()),
               number(operation.target_value(), 9), number(operation.reference_value(), 9), number(operation.drift())});
  }
  table.drop_silent();
  const std::uint64_t before = alignment.before() + static_cast<std::uint64_t>(first),
                      after = alignment.after() + static_cast<std::uint64_t>(alignment.operations_size() - end);
  std::string out = absl::StrCat("Along the graph\n", counts(alignment));
  if (before > 0) absl::StrAppend(&out, "  ", before, " before\n");
  out += table.str("  ", style.width);
  if (after > 0) absl::StrAppend(&out, "  ", after, " after", style.all ? "" : " (--all)", "\n");
  return out;
}

}  // namespace plumbline
