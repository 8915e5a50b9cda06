// Verdicts and jobs as text for a terminal. What the daemon's ExplainVerdict answers and what `plumb` prints come from
// here alike. Control characters in names (they come from the audited program) are shown as '?'.
#pragma once

#include <string>
#include <vector>

#include "plumbline/v1/archive.pb.h"
#include "plumbline/v1/query.pb.h"
#include "plumbline/v1/verdict.pb.h"

namespace plumbline {

// One screen: verdict, cause, suspect, one sentence, and the numbers behind it. Ends in a newline.
std::string format_verdict(const v1::Verdict& verdict);

// All of it: what was asked, what was measured, every tap (the 40 of largest surprise), who contributed, hazards,
// advice.
std::string explain_verdict(const v1::Verdict& verdict);

// Tables with a head, a row for each; columns padded to their widest cell.
std::string format_jobs(const std::vector<v1::JobSummary>& jobs);
std::string format_verdicts(const std::vector<v1::Verdict>& verdicts);

std::string format_golden(const std::vector<v1::GoldenSummary>& golden);

// One line for a verdict that arrives, in columns of fixed width.
std::string format_verdict_line(const v1::Verdict& verdict);

// "TYPE_II", "FIRST_ORDER", "PRECISION_POLICY", ...
std::string outcome_name(v1::Outcome outcome);
std::string grade_name(v1::Grade grade);
std::string cause_name(v1::Cause cause);

}  // namespace plumbline
