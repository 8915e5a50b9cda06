#include "client/cpp/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/cpp/alignment_text.h"
#include "client/cpp/names.h"
#include "client/cpp/text_table.h"

namespace plumbline {
namespace {

constexpr int kTapsShown = 40;
constexpr int kTapsTold = 8;          // Without --all, so many of those that did not pass are told.
constexpr int kContributorsTold = 5;  // Without --all.
constexpr std::size_t kTextWidth = 96;
constexpr std::size_t kRowsTold = 20;  // So many verdicts are told where the terminal does not tell its height.
constexpr int kValueDigits = 9;        // Values have so many, since they are compared; ratios have three.

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

// In a table a place's line comes first, as a cell may be cut.
std::string place_cell(const v1::Place& place) {
  return printable(place.source().empty() ? place.op() : absl::StrCat(place.source(), " ", place.op()));
}

// The surprise of a verdict or a tap; what an older daemon judged has none.
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

std::size_t text_width(const TextStyle& style) {
  return style.width == 0 ? kTextWidth : std::min(style.width, kTextWidth);
}

// Words of a paragraph in lines of the style's width, the first after `first`, the others after as many spaces; few,
// where the terminal is narrow. A terminal's lines are never longer: a longer word is broken.
std::string paragraph(const std::string& first, const std::string& text, const TextStyle& style) {
  const std::size_t width = text_width(style);
  const std::string indent(width < 60 ? std::min(first.size(), std::size_t{4}) : first.size(), ' ');
  std::string out, line = first;
  bool bare = true;
  const auto next_line = [&] {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    line = indent;
    bare = true;
  };
  for (const absl::string_view each : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    std::string word(each);
    if (!bare && line.size() + 1 + word.size() > width) next_line();
    if (bare && line.size() > indent.size() && line.size() + word.size() > width) next_line();
    while (style.width > 0 && indent.size() + word.size() > width) {
      std::size_t end = width - indent.size();
      while (end > 1 && (static_cast<unsigned char>(word[end]) & 0xC0u) == 0x80u) --end;
      line += word.substr(0, end);
      word.erase(0, end);
      next_line();
    }
    line += (bare ? "" : " ") + word;
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
  if (coverage.work() > 0) {
    absl::StrAppendFormat(&text, ", %.3g %% of the work", 100 * (1 - coverage.work_audited() / coverage.work()));
  }
  if (coverage.opaque_names_size() > 0) {
    absl::StrAppend(&text, " (", printable(absl::StrJoin(coverage.opaque_names(), ", ")), ")");
  }
  return text;
}

// Bold, in the colour of the outcome: green, red, yellow.
std::string coloured(v1::Outcome outcome, const std::string& text, const TextStyle& style) {
  if (!style.colour) return text;
  const char* code = outcome == v1::OUTCOME_TYPE_I ? "32" : outcome == v1::OUTCOME_TYPE_II ? "31" : "33";
  return absl::StrCat("\x1b[1;", code, "m", text, "\x1b[0m");
}

// The verdict of all ranks of several nodes has -1 for its rank, beside those of each node.
std::string id_text(const v1::Verdict& verdict) {
  return printable(verdict.id()) + (verdict.rank() < 0 ? " (all ranks)" : "");
}

std::string heading(const v1::Verdict& verdict, const TextStyle& style) {
  const std::string outcome = short_name(verdict.verdict());
  std::string text = paragraph(
      outcome + "  ",
      absl::StrCat(short_name(verdict.grade()), "  ", short_name(verdict.cause()), "  ", id_text(verdict)), style);
  return coloured(verdict.verdict(), outcome, style) + text.substr(outcome.size());
}

// A name and what it is of, where there is anything to say.
std::string fact(const std::string& name, const std::string& text, const TextStyle& style) {
  constexpr std::size_t kName = 12;
  std::string first = "  " + name;
  first.append(2 + kName - std::min(first.size(), 2 + kName), ' ');
  return text.empty() ? "" : paragraph(first, text, style);
}

std::string suspect_text(const v1::Verdict& verdict, const TextStyle& style) {
  return fact("suspect", place_text(verdict.suspect()), style) + fact("", printable(verdict.suspect_detail()), style);
}

// "NAME number" for what was asked, with commas between.
std::string asked(const std::vector<std::pair<std::string, double>>& numbers) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : numbers) {
    if (!std::isnan(value)) texts.push_back(absl::StrCat(name, " ", number(value)));
  }
  return absl::StrJoin(texts, ", ");
}

std::string numbers_text(const v1::Verdict& verdict, const TextStyle& style) {
  std::string deviation =
      asked({{"", verdict.deviation()}, {"allowed", verdict.envelope()}, {"margin", verdict.margin()}});
  if (!deviation.empty()) {
    if (deviation.front() == ' ') deviation.erase(0, 1);
    absl::StrAppend(&deviation, " (relative), at ",
                    verdict.deciding_tap().empty() ? "no tap" : printable(verdict.deciding_tap()));
  }
  std::string resolution =
      asked({{"mathematics", verdict.math_resolution()}, {"execution", verdict.exec_resolution()}});
  if (!resolution.empty()) resolution += " (relative)";
  const std::string surprise = verdict.has_surprise() ? surprise_text(verdict) : "";
  return fact("surprise", surprise, style) + fact("deviation", deviation, style) +
         fact("resolution", resolution, style);
}

std::string taps_text(const v1::Verdict& verdict, const TextStyle& style) {
  std::vector<const v1::TapVerdict*> taps;
  for (const v1::TapVerdict& tap : verdict.taps()) {
    if (style.all || tap.outcome() != v1::OUTCOME_TYPE_I) taps.push_back(&tap);
  }
  const int passed = verdict.taps_size() - static_cast<int>(taps.size());
  const auto severity = [](const v1::TapVerdict* tap) {
    return std::pair(tap->has_surprise() ? tap->surprise() : -1, std::isnan(tap->margin()) ? -1 : tap->margin());
  };
  std::stable_sort(taps.begin(), taps.end(), [&](const auto* a, const auto* b) { return severity(a) > severity(b); });

  TextTable table({"tap", "verdict", ">deviation", ">allowed", ">margin", ">surprise", "grade", ">observed",
                   ">reference", ">low", ">high", ">drift"});
  const std::size_t shown = std::min(taps.size(), static_cast<std::size_t>(style.all ? kTapsShown : kTapsTold));
  for (std::size_t i = 0; i < shown; ++i) {
    const v1::TapVerdict& tap = *taps[i];
    std::string name = printable(tap.name());
    if (tap.elements() > 1) absl::StrAppend(&name, "[", tap.worst_element(), " of ", tap.elements(), "]");
    table.add({name, short_name(tap.outcome()), number(tap.deviation()), number(tap.envelope()), number(tap.margin()),
               surprise_text(tap), short_name(tap.grade()), number(tap.observed(), kValueDigits),
               number(tap.reference(), kValueDigits), number(tap.low(), kValueDigits), number(tap.high(), kValueDigits),
               number(tap.drift())});
  }
  table.drop_silent();
  std::string out = paragraph("", "Taps (largest surprise first; of a tensor, its worst element)", style);
  if (shown > 0) out += table.str("  ", style.width);
  std::vector<std::string> more;
  if (taps.size() > shown) more.push_back(absl::StrCat(shown > 0 ? "and " : "", taps.size() - shown, " more"));
  if (passed > 0) more.push_back(absl::StrCat(passed, " passed"));
  if (!more.empty())
    out += paragraph("  ", absl::StrCat(absl::StrJoin(more, "; "), style.all ? "" : " (--all)"), style);
  return out;
}

std::string contributors_text(const v1::Verdict& verdict, const TextStyle& style) {
  TextTable table({">share", "operation", "source", "module", ">operations", "format"});
  const int shown = style.all ? verdict.contributors_size() : std::min(verdict.contributors_size(), kContributorsTold);
  for (int i = 0; i < shown; ++i) {
    const v1::Contributor& contributor = verdict.contributors(i);
    const v1::Place& place = contributor.place();
    table.add({percent(contributor.share()), printable(place.op()), printable(place.source()),
               printable(place.module()), absl::StrCat(contributor.count()), printable(place.format())});
  }
  table.drop_silent();
  std::string out = "Where the envelope comes from\n" + table.str("  ", style.width);
  if (shown < verdict.contributors_size()) {
    absl::StrAppend(&out, "  and ", verdict.contributors_size() - shown, " more (--all)\n");
  }
  return out;
}

std::string hazards_text(const v1::Verdict& verdict, const TextStyle& style) {
  std::string out = "Hazards\n";
  for (const v1::Hazard& hazard : verdict.hazards()) {
    std::string text = absl::StrCat(printable(hazard.kind()), " in ", percent(hazard.share()), " of the elements");
    if (hazard.has_place()) absl::StrAppend(&text, ", ", place_text(hazard.place()));
    if (!hazard.sentence().empty()) absl::StrAppend(&text, ": ", printable(hazard.sentence()));
    if (!hazard.remedy().empty()) absl::StrAppend(&text, ": ", printable(hazard.remedy()));
    out += paragraph("  ", text, style);
  }
  return out;
}

template <typename Texts>
std::string list_text(const std::string& title, const Texts& texts, const TextStyle& style) {
  std::string out = title + "\n";
  for (const std::string& text : texts) out += paragraph("  - ", printable(text), style);
  return out;
}

// The coverage of the last run, told by the rank that audited least.
std::string run_coverage_text(const v1::JobSummary& job) {
  const v1::RunCoverage* least = nullptr;
  for (const v1::RunCoverage& each : job.coverage()) {
    if (least == nullptr || each.modules_audited() < least->modules_audited()) least = &each;
  }
  return least == nullptr ? "" : modules_text(least->modules_audited(), least->modules());
}

std::vector<std::string> verdict_cells(const v1::Verdict& verdict) {
  return {id_text(verdict),
          short_name(verdict.verdict()),
          short_name(verdict.grade()),
          short_name(verdict.cause()),
          surprise_text(verdict),
          number(verdict.math_resolution()),
          number(verdict.exec_resolution()),
          verdict.has_suspect() ? place_cell(verdict.suspect()) : ""};
}

// On a terminal: what did not pass, or all where everything passed, as many as fit, the last ones.
std::vector<const v1::Verdict*> told(const std::vector<v1::Verdict>& verdicts, const TextStyle& style) {
  std::vector<const v1::Verdict*> all, open;
  for (const v1::Verdict& verdict : verdicts) {
    all.push_back(&verdict);
    if (verdict.verdict() != v1::OUTCOME_TYPE_I) open.push_back(&verdict);
  }
  if (style.width == 0 || style.all) return all;
  std::vector<const v1::Verdict*> rows = open.empty() ? std::move(all) : std::move(open);
  constexpr std::size_t kOtherLines = 5;  // Counts, head, what is left out, and the prompt.
  const std::size_t most = style.height > kOtherLines ? style.height - kOtherLines : kRowsTold;
  if (rows.size() > most) rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(most));
  return rows;
}

std::string count_text(const std::vector<v1::Verdict>& verdicts, const TextStyle& style) {
  std::vector<std::string> counts;
  for (const v1::Outcome outcome : {v1::OUTCOME_TYPE_II, v1::OUTCOME_INCONCLUSIVE, v1::OUTCOME_TYPE_I}) {
    const auto count = std::count_if(verdicts.begin(), verdicts.end(),
                                     [&](const v1::Verdict& verdict) { return verdict.verdict() == outcome; });
    if (count > 0) counts.push_back(coloured(outcome, absl::StrCat(count, " ", short_name(outcome)), style));
  }
  return counts.empty() ? "no verdicts" : absl::StrJoin(counts, ", ");
}

}  // namespace

std::string format_verdict(const v1::Verdict& verdict, const TextStyle& style) {
  std::string out = heading(verdict, style);
  if (!verdict.sentence().empty()) out += paragraph("", printable(verdict.sentence()), style);
  if (verdict.has_suspect()) out += suspect_text(verdict, style);
  return out + numbers_text(verdict, style) + fact("coverage", coverage_text(verdict.coverage()), style);
}

std::string explain_verdict(const v1::Verdict& verdict, const TextStyle& style, const std::string& lines) {
  const v1::Coverage& coverage = verdict.coverage();
  std::string out = heading(verdict, style);
  if (!verdict.sentence().empty()) out += paragraph("", printable(verdict.sentence()), style);
  if (verdict.has_suspect()) out += "\nWhere\n" + suspect_text(verdict, style) + lines;
  if (verdict.advice_size() > 0) out += "\n" + list_text("Advice", verdict.advice(), style);
  out += "\nMeasured\n" + numbers_text(verdict, style);
  if (!std::isnan(verdict.explained())) {
    out += fact("explained", number(verdict.explained()) + " of the deviation by our own rounded replay", style);
  }
  out += fact("coverage", coverage_text(coverage), style);
  if (coverage.decisions() > 0) {
    out += fact("decisions",
                absl::StrCat(coverage.decisions(), " elements decided by data, ", coverage.unstable(),
                             " of them within rounding of turning"),
                style);
  }
  if (verdict.alignment().operations_size() > 0) out += "\n" + alignment_text(verdict.alignment(), style);
  if (verdict.taps_size() > 0) out += "\n" + taps_text(verdict, style);
  if (verdict.contributors_size() > 0) out += "\n" + contributors_text(verdict, style);
  if (verdict.hazards_size() > 0) out += "\n" + hazards_text(verdict, style);
  if (verdict.notes_size() > 0) out += "\n" + list_text("Notes", verdict.notes(), style);
  out += "\nAsked\n" + fact("reference", printable(verdict.reference()), style);
  if (verdict.ranks_of_run() > 0) {
    out += fact(
        "ranks",
        absl::StrCat(absl::StrJoin(verdict.ranks_here(), ", "), " of ", verdict.ranks_of_run(), ", judged together"),
        style);
  } else if (verdict.ranks() > 1) {
    out += fact("ranks", absl::StrCat(verdict.ranks(), ", judged together"), style);
  }
  out += fact(
      "profile",
      absl::StrCat(printable(verdict.profile()), " on ", printable(verdict.backend()), ", ", time_text(verdict.time()),
                   " UTC, in ", number(verdict.audit_seconds()), " s, trace ", printable(verdict.digest())),
      style);
  if (!verdict.node().empty()) out += fact("judged by", printable(verdict.node()), style);
  if (!verdict.trace_id().empty()) out += fact("trace id", printable(verdict.trace_id()), style);
  if (verdict.trace() == v1::TRACE_STATE_KEPT) {
    out += fact("trace", absl::StrCat("kept: plumb replay ", printable(verdict.id())), style);
  } else if (verdict.trace() == v1::TRACE_STATE_EVICTED) {
    out += fact("trace", "evicted (--trace-quota)", style);
  }
  return out;
}

std::string format_history(const v1::History& history) {
  if (history.scope() != v1::History::SCOPE_OWN || history.reason().empty()) return "";
  return absl::StrCat("From the history of this daemon alone; the one that it shares with others is away: ",
                      printable(history.reason()), "\n");
}

std::string format_jobs(const std::vector<v1::JobSummary>& jobs, const TextStyle& style) {
  TextTable table({"job", ">type_ii", ">inconclusive", ">type_i", "worst verdict", "last seen (UTC)",
                   ">modules audited", ">missed", ">errors", ">runs", ">steps", "project"});
  bool projects = false;
  std::uint64_t accused = 0;
  for (const v1::JobSummary& job : jobs) projects = projects || job.project() != "default";
  for (const v1::JobSummary& job : jobs) {
    accused += job.type_ii() > 0;
    table.add({printable(job.job()), absl::StrCat(job.type_ii()), absl::StrCat(job.inconclusive()),
               absl::StrCat(job.type_i()), printable(job.worst_verdict_id()), time_text(job.last_seen()),
               run_coverage_text(job), absl::StrCat(job.missed()), absl::StrCat(job.errors()),
               absl::StrCat(job.runs_size()), absl::StrCat(job.steps()), projects ? printable(job.project()) : ""});
  }
  std::string out;
  if (style.width > 0) {
    const std::string counted =
        absl::StrCat(jobs.size(), jobs.size() == 1 ? " job, " : " jobs, ", accused, " with TYPE_II");
    out = coloured(accused > 0 ? v1::OUTCOME_TYPE_II : v1::OUTCOME_TYPE_I, counted, style) + "\n";
    if (!style.all) table.drop_silent();
  }
  return out + table.str("", style.all ? 0 : style.width);
}

std::string format_verdicts(const std::vector<v1::Verdict>& verdicts, const TextStyle& style) {
  TextTable table(
      {"verdict of", "verdict", "suspect", "cause", ">surprise", "grade", ">mathematics", ">execution", ">modules"});
  const std::vector<const v1::Verdict*> rows = told(verdicts, style);
  for (const v1::Verdict* verdict : rows) {
    const std::vector<std::string> cells = verdict_cells(*verdict);
    table.add({cells[0], cells[1], cells[7], cells[3], cells[4], cells[2], cells[5], cells[6],
               modules_text(verdict->coverage().modules_audited(), verdict->coverage().modules())});
  }
  if (style.width == 0) return table.str();
  if (!style.all) table.drop_silent();
  std::string out = count_text(verdicts, style) + "\n";
  if (!rows.empty()) out += table.str("", style.all ? 0 : style.width);
  if (rows.size() < verdicts.size()) absl::StrAppend(&out, "and ", verdicts.size() - rows.size(), " more (--all)\n");
  return out;
}

std::string format_watch(const WatchCounts& counts, const std::deque<v1::Verdict>& last, const TextStyle& style) {
  const std::vector<std::pair<v1::Outcome, std::uint64_t>> seen = {{v1::OUTCOME_TYPE_II, counts.type_ii},
                                                                   {v1::OUTCOME_INCONCLUSIVE, counts.inconclusive},
                                                                   {v1::OUTCOME_TYPE_I, counts.type_i}};
  std::vector<std::string> parts;
  for (const auto& [outcome, count] : seen) {
    if (count > 0) parts.push_back(coloured(outcome, absl::StrCat(count, " ", short_name(outcome)), style));
  }
  std::string out = parts.empty() ? "no verdict yet\n" : absl::StrJoin(parts, ", ") + "\n";
  if (!last.empty()) {
    absl::StrAppend(&out, "last at ", time_text(last.back().time()), " UTC\n\n");
    TextTable table({"verdict of", "verdict", "suspect", "cause", ">surprise"});
    for (auto verdict = last.rbegin(); verdict != last.rend(); ++verdict) {
      const std::vector<std::string> cells = verdict_cells(*verdict);
      table.add({cells[0], cells[1], cells[7], cells[3], cells[4]});
    }
    table.drop_silent();
    out += table.str("", style.width);
  }
  if (counts.first_type_ii.has_suspect()) {
    out += "\n" +
           paragraph("first TYPE_II: ", printable(counts.first_type_ii.id() + ": " + counts.first_type_ii.sentence()),
                     style);
  }
  return out;
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
