// Verdicts and jobs as text for a terminal. What the daemon's ExplainVerdict answers and what `plumb` prints come from
// here alike. Control characters in names (they come from the audited program) are shown as '?'.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "plumbline/v1/archive.pb.h"
#include "plumbline/v1/query.pb.h"
#include "plumbline/v1/verdict.pb.h"

namespace plumbline {

// How text is laid out. The default is that of a file: no colours, paragraphs of at most 96 columns, and no table is
// cut.
struct TextStyle {
  std::size_t width = 0;   // Columns of the terminal; 0: it is none.
  std::size_t height = 0;  // Its lines; 0: any number.
  bool colour = false;
  bool all = false;  // What merely passed too, and every column.
};

// One screen: verdict, cause, suspect, one sentence, and the numbers behind it. Ends in a newline.
std::string format_verdict(const v1::Verdict& verdict, const TextStyle& style = {});

// What was asked, what was measured, which taps did not pass, who contributed, hazards, advice; with `all`, every tap
// (the 40 of largest surprise) and contributor. `lines` goes after the suspect: source text, ready to print.
std::string explain_verdict(const v1::Verdict& verdict, const TextStyle& style = {}, const std::string& lines = "");

// Tables with a head, a row for each; columns padded to their widest cell. A line of counts goes before them on a
// terminal, where of verdicts the last ones that fit are shown, without those that passed where others did not.
std::string format_jobs(const std::vector<v1::JobSummary>& jobs, const TextStyle& style = {});
std::string format_verdicts(const std::vector<v1::Verdict>& verdicts, const TextStyle& style = {});

// A line that says which history is missing from an answer, and why; empty: none is.
std::string format_history(const v1::History& history);

std::string format_golden(const std::vector<v1::GoldenSummary>& golden);

// One line for a verdict that arrives, in columns of fixed width.
std::string format_verdict_line(const v1::Verdict& verdict);

// What a watch has seen, for a screen that is drawn again with each verdict: counts, the `last` ones (the latest on
// top) and the first TYPE_II.
struct WatchCounts {
  std::uint64_t type_i = 0, type_ii = 0, inconclusive = 0;
  v1::Verdict first_type_ii;
};
std::string format_watch(const WatchCounts& counts, const std::deque<v1::Verdict>& last, const TextStyle& style);

}  // namespace plumbline
