#include "client/cpp/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cpp/text_table.h"

namespace plumbline {
namespace {

constexpr std::size_t kTapsShown = 40;
constexpr std::size_t kTextWidth = 96;
constexpr int kValueDigits = 9;  // Of values, which are compared; ratios have three.

std::string enum_name(const std::string& name, int value) { return name.empty() ? absl::StrCat(value) : name; }

std::string time_text(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixSeconds(time.seconds()), absl::UTCTimeZone());
}

std::string place_text(const v1::Place& place) {
  std::string text = printable(place.op());
  if (!place.source().empty()) absl::StrAppend(&text, " at ", printable(place.source()));
  if (!place.module().empty()) absl::StrAppend(&text, " in ", printable(place.module()));
  if (!place.format().empty()) absl::StrAppend(&text, " (", printable(place.format()), ")");
  return text;
}

// Of a verdict or a tap; an older daemon's has none.
template <typename Judged>
std::string surprise_text(const Judged& judged) {
  return judged.has_surprise() ? number(judged.surprise()) : "-";
}

std::string percent(double share) {
  if (std::isnan(share)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, share != 0 && std::fabs(share) < 0.001 ? "%.1g%%" : "%.1f%%", 100 * share);
  return text;
}

// Words of a paragraph in lines of kTextWidth, the first after `first`, the others after as many spaces.
std::string paragraph(const std::string& first, const std::string& text) {
  const std::string indent(first.size(), ' ');
  std::string out, line = first;
  bool bare = true;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!bare && line.size() + 1 + word.size() > kTextWidth) {
      out += line + "\n";
      line = indent;
      bare = true;
    }
    if (!bare) line += ' ';
    line += word;
    bare = false;
  }
  return out + line + "\n";
}

// "12 of 90" modules, of a partial step or a run of such; empty: not stated.
std::string modules_text(std::uint64_t audited, std::uint64_t all) {
  return all == 0 ? "" : absl::StrCat(audited, " of ", all);
}

std::string coverage_text(const v1::Coverage& coverage) {
  std::string text;
  if (coverage.partial()) {
    absl::StrAppend(&text, "partial: ", modules_text(coverage.modules_audited(), coverage.modules()), " modules, ",
                    coverage.parameters_audited(), " of ", coverage.parameters(), " parameters; of the trace ");
  }
  absl::StrAppend(&text, coverage.audited(), " of ", coverage.operations(), " operations audited, ");
  if (coverage.opaque() == 0) return text + "none opaque";
  absl::StrAppend(&text, coverage.opaque(), " opaque");
  if (coverage.opaque_names_size() > 0) {
    absl::StrAppend(&text, " (", printable(absl::StrJoin(coverage.opaque_names(), ", ")), ")");
  }
  return text;
}

std::string heading(const v1::Verdict& verdict) {
  return absl::StrCat(outcome_name(verdict.verdict()), "  ", grade_name(verdict.grade()), "  ",
                      cause_name(verdict.cause()), "  ", printable(verdict.id()), "\n");
}

std::string suspect_text(const v1::Verdict& verdict) {
  std::string out = paragraph("  suspect     ", place_text(verdict.suspect()));
  if (!verdict.suspect_detail().empty()) out += paragraph("              ", printable(verdict.suspect_detail()));
  return out;
}

std::string numbers_text(const v1::Verdict& verdict) {
  return absl::StrCat("  surprise    ", surprise_text(verdict), "\n",  //
                      "  deviation   ", number(verdict.deviation()), " at ",
                      verdict.deciding_tap().empty() ? "no tap" : printable(verdict.deciding_tap()), ", envelope ",
                      number(verdict.envelope()), ", margin ", number(verdict.margin()), "\n",  //
                      "  resolution  mathematics ", number(verdict.math_resolution()), ", execution ",
                      number(verdict.exec_resolution()), "\n");
}

std::string taps_text(const v1::Verdict& verdict) {
  std::vector<const v1::TapVerdict*> taps;
  for (const v1::TapVerdict& tap : verdict.taps()) taps.push_back(&tap);
  const auto severity = [](const v1::TapVerdict* tap) {
    return std::pair(tap->has_surprise() ? tap->surprise() : -1, std::isnan(tap->margin()) ? -1 : tap->margin());
  };
  std::stable_sort(taps.begin(), taps.end(), [&](const auto* a, const auto* b) { return severity(a) > severity(b); });

  TextTable table({"tap", "verdict", "grade", ">observed", ">reference", ">low", ">high", ">deviation", ">envelope",
                   ">margin", ">surprise", ">drift"});
  for (std::size_t i = 0; i < std::min(taps.size(), kTapsShown); ++i) {
    const v1::TapVerdict& tap = *taps[i];
    std::string name = printable(tap.name());
    if (tap.elements() > 1) absl::StrAppend(&name, "[", tap.worst_element(), " of ", tap.elements(), "]");
    table.add({name, outcome_name(tap.outcome()), grade_name(tap.grade()), number(tap.observed(), kValueDigits),
               number(tap.reference(), kValueDigits), number(tap.low(), kValueDigits), number(tap.high(), kValueDigits),
               number(tap.deviation()), number(tap.envelope()), number(tap.margin()), surprise_text(tap),
               number(tap.drift())});
  }
  std::string out = absl::StrCat("Taps (largest surprise first; of a tensor, its worst element)\n", table.str("  "));
  if (taps.size() > kTapsShown) absl::StrAppend(&out, "  and ", taps.size() - kTapsShown, " more\n");
  return out;
}

std::string contributors_text(const v1::Verdict& verdict) {
  TextTable table({">share", ">operations", "operation", "source", "module", "format"});
  for (const v1::Contributor& contributor : verdict.contributors()) {
    const v1::Place& place = contributor.place();
    table.add({percent(contributor.share()), absl::StrCat(contributor.count()), printable(place.op()),
               printable(place.source()), printable(place.module()), printable(place.format())});
  }
  return "Where the envelope comes from\n" + table.str("  ");
}

std::string hazards_text(const v1::Verdict& verdict) {
  std::string out = "Hazards\n";
  for (const v1::Hazard& hazard : verdict.hazards()) {
    std::string text = absl::StrCat(printable(hazard.kind()), " in ", percent(hazard.share()), " of the elements");
    if (hazard.has_place()) absl::StrAppend(&text, ", ", place_text(hazard.place()));
    if (!hazard.sentence().empty()) absl::StrAppend(&text, ": ", printable(hazard.sentence()));
    if (!hazard.remedy().empty()) absl::StrAppend(&text, ": ", printable(hazard.remedy()));
    out += paragraph("  ", text);
  }
  return out;
}

template <typename Texts>
std::string list_text(const std::string& title, const Texts& texts) {
  std::string out = title + "\n";
  for (const std::string& text : texts) out += paragraph("  - ", printable(text));
  return out;
}

// Of the last run, over its ranks the one that audited least.
std::string run_coverage_text(const v1::JobSummary& job) {
  const v1::RunCoverage* least = nullptr;
  for (const v1::RunCoverage& each : job.coverage()) {
    if (least == nullptr || each.modules_audited() < least->modules_audited()) least = &each;
  }
  return least == nullptr ? "" : modules_text(least->modules_audited(), least->modules());
}

std::vector<std::string> verdict_cells(const v1::Verdict& verdict) {
  return {printable(verdict.id()),
          outcome_name(verdict.verdict()),
          grade_name(verdict.grade()),
          cause_name(verdict.cause()),
          surprise_text(verdict),
          number(verdict.math_resolution()),
          number(verdict.exec_resolution()),
          verdict.has_suspect() ? place_text(verdict.suspect()) : ""};
}

}  // namespace

std::string outcome_name(v1::Outcome outcome) { return enum_name(v1::Outcome_Name(outcome), outcome); }
std::string grade_name(v1::Grade grade) { return enum_name(v1::Grade_Name(grade), grade); }
std::string cause_name(v1::Cause cause) { return enum_name(v1::Cause_Name(cause), cause); }

std::string format_verdict(const v1::Verdict& verdict) {
  std::string out = heading(verdict);
  if (!verdict.sentence().empty()) out += paragraph("", printable(verdict.sentence()));
  if (verdict.has_suspect()) out += suspect_text(verdict);
  out += numbers_text(verdict);
  out += "  coverage    " + coverage_text(verdict.coverage()) + "\n";
  return out;
}

std::string explain_verdict(const v1::Verdict& verdict) {
  const v1::Coverage& coverage = verdict.coverage();
  std::string out = heading(verdict);
  if (!verdict.sentence().empty()) out += paragraph("", printable(verdict.sentence()));
  out += "\nAsked\n";
  absl::StrAppend(&out, "  reference   ", verdict.reference().empty() ? "-" : printable(verdict.reference()), "\n");
  if (verdict.ranks() > 1) absl::StrAppend(&out, "  ranks       ", verdict.ranks(), ", judged together\n");
  absl::StrAppend(&out, "  profile     ", printable(verdict.profile()), " on ", printable(verdict.backend()), ", ",
                  time_text(verdict.time()), " UTC, ", number(verdict.audit_seconds()), " s, trace ",
                  printable(verdict.digest()), "\n");
  if (verdict.trace() == v1::KEPT) {
    absl::StrAppend(&out, "  trace       kept: plumb replay ", printable(verdict.id()), "\n");
  } else if (verdict.trace() == v1::EVICTED) {
    out += "  trace       evicted (--trace-quota)\n";
  }
  out += "\nMeasured\n";
  if (verdict.has_suspect()) out += suspect_text(verdict);
  out += numbers_text(verdict);
  absl::StrAppend(&out, "  explained   ", number(verdict.explained()), " of the deviation by our own rounded replay\n");
  out += paragraph("  coverage    ", coverage_text(coverage));
  absl::StrAppend(&out, "  decisions   ", coverage.decisions(), " elements decided by data, ", coverage.unstable(),
                  " of them within rounding of turning\n");
  if (verdict.taps_size() > 0) out += "\n" + taps_text(verdict);
  if (verdict.contributors_size() > 0) out += "\n" + contributors_text(verdict);
  if (verdict.hazards_size() > 0) out += "\n" + hazards_text(verdict);
  if (verdict.advice_size() > 0) out += "\n" + list_text("Advice", verdict.advice());
  if (verdict.notes_size() > 0) out += "\n" + list_text("Notes", verdict.notes());
  return out;
}

std::string format_jobs(const std::vector<v1::JobSummary>& jobs) {
  TextTable table({"project", "job", ">runs", ">steps", ">type_i", ">type_ii", ">inconclusive", ">missed", ">errors",
                   ">modules audited", "last seen (UTC)", "worst verdict"});
  for (const v1::JobSummary& job : jobs) {
    table.add({printable(job.project()), printable(job.job()), absl::StrCat(job.runs_size()), absl::StrCat(job.steps()),
               absl::StrCat(job.type_i()), absl::StrCat(job.type_ii()), absl::StrCat(job.inconclusive()),
               absl::StrCat(job.missed()), absl::StrCat(job.errors()), run_coverage_text(job),
               time_text(job.last_seen()), printable(job.worst_verdict_id())});
  }
  return table.str();
}

std::string format_verdicts(const std::vector<v1::Verdict>& verdicts) {
  TextTable table({"verdict of", "verdict", "grade", "cause", ">surprise", ">math_resolution", ">exec_resolution",
                   ">modules", "suspect"});
  for (const v1::Verdict& verdict : verdicts) {
    std::vector<std::string> cells = verdict_cells(verdict);
    cells.insert(cells.end() - 1, modules_text(verdict.coverage().modules_audited(), verdict.coverage().modules()));
    table.add(cells);
  }
  return table.str();
}

std::string format_golden(const std::vector<v1::GoldenSummary>& golden) {
  TextTable table(
      {"project", "golden run", ">steps", ">first", ">last", ">bytes", "recorded by", "profile", "recorded (UTC)"});
  for (const v1::GoldenSummary& each : golden) {
    const v1::GoldenHeader& header = each.header();
    if (!each.error().empty()) {
      table.add({printable(header.project()), printable(header.name()), "-", "-", "-", "-", printable(each.error())});
      continue;
    }
    table.add({printable(header.project()), printable(header.name()), absl::StrCat(each.steps()),
               absl::StrCat(each.step_first()), absl::StrCat(each.step_last()), absl::StrCat(each.bytes()),
               printable(header.run()), printable(header.profile()), time_text(header.time())});
  }
  return table.str();
}

std::string format_verdict_line(const v1::Verdict& verdict) {
  const std::vector<std::string> cells = verdict_cells(verdict);
  char columns[128];
  std::snprintf(columns, sizeof columns, "%-12s  %-11s  %-18s  %9s", cells[1].c_str(), cells[2].c_str(),
                cells[3].c_str(), cells[4].c_str());
  std::string line = absl::StrCat(time_text(verdict.time()), "  ", columns, "  ", cells[0]);
  if (!cells[7].empty()) absl::StrAppend(&line, "  ", cells[7]);
  return line + "\n";
}

}  // namespace plumbline
