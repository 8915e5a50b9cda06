#include "client/cpp/cli/plumb.h"

#include <algorithm>
#include <deque>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/cli/archive.h"
#include "client/cpp/cli/follow.h"
#include "client/cpp/cli/formats.h"
#include "client/cpp/cli/output.h"
#include "client/cpp/cli/report.h"
#include "client/cpp/cli/signals.h"
#include "client/cpp/client.h"
#include "client/cpp/format.h"
#include "client/cpp/names.h"
#include "client/cpp/page/sources.h"
#include "client/cpp/text_table.h"

namespace plumbline {
namespace {

// "type-ii", "TYPE_II", "type_ii", "OUTCOME_TYPE_II" -> OUTCOME_TYPE_II; empty: any.
bool parse_outcome(const std::string& text, v1::Outcome* outcome) {
  *outcome = v1::OUTCOME_UNSPECIFIED;
  if (text.empty()) return true;
  std::string name = absl::AsciiStrToUpper(text);
  std::replace(name.begin(), name.end(), '-', '_');
  for (int i = 1; i < v1::Outcome_descriptor()->value_count(); ++i) {
    const auto& value = *v1::Outcome_descriptor()->value(i);
    *outcome = static_cast<v1::Outcome>(value.number());
    if (name == value.name() || name == short_name(*outcome)) return true;
  }
  return false;
}

bool make_filter(const PlumbOptions& options, v1::Filter* filter) {
  v1::Outcome outcome;
  if (!parse_outcome(options.verdict, &outcome)) return false;
  filter->set_project(options.project);
  filter->set_job(options.job);
  filter->set_run(options.run);
  filter->set_verdict(outcome);
  filter->set_step_min(options.step_min);
  filter->set_step_max(options.step_max);
  filter->set_trace_id(options.trace_id);
  return true;
}

std::string wrong_outcome(const PlumbOptions& options) {
  return absl::StrCat("--verdict: expected TYPE_I, TYPE_II or INCONCLUSIVE, found \"", options.verdict, "\"");
}

int jobs(Client& client, const PlumbOptions& options, std::ostream& out, std::ostream& err) {
  auto found = client.jobs(options.project);
  if (!found.ok()) return fail(err, found.status());
  if (!options.job.empty()) std::erase_if(*found, [&](const v1::JobSummary& job) { return job.job() != options.job; });
  if (options.json) {
    for (const v1::JobSummary& job : *found) out << json_line(job);
  } else {
    out << format_jobs(*found, options.style) << format_history(client.history());
  }
  return kExitTypeI;
}

int verdicts(Client& client, const PlumbOptions& options, const v1::Filter& filter, std::ostream& out,
             std::ostream& err) {
  int code = kExitTypeI;
  std::vector<v1::Verdict> rows;
  const absl::Status status = client.verdicts(filter, [&](v1::Verdict verdict) {
    code = worse_exit_code(code, exit_code(verdict.verdict()));
    if (options.json) {
      out << json_line(verdict);
    } else {
      rows.push_back(std::move(verdict));
    }
  });
  if (!status.ok()) return fail(err, status);
  if (!options.json) out << format_verdicts(rows, options.style) << format_history(client.history());
  return code;
}

// The screen of a watch on a terminal: drawn again in place with each verdict.
class WatchScreen {
 public:
  explicit WatchScreen(const TextStyle& style) : style_(style) {}

  std::string add(v1::Verdict verdict) {
    verdict.clear_taps();
    verdict.clear_contributors();
    verdict.clear_alignment();
    if (verdict.verdict() == v1::OUTCOME_TYPE_II && counts_.type_ii++ == 0) counts_.first_type_ii = verdict;
    counts_.type_i += verdict.verdict() == v1::OUTCOME_TYPE_I;
    counts_.inconclusive += verdict.verdict() != v1::OUTCOME_TYPE_I && verdict.verdict() != v1::OUTCOME_TYPE_II;
    last_.push_back(std::move(verdict));
    constexpr std::size_t kOtherLines = 10, kRows = 14;
    const std::size_t most = style_.height == 0 ? kRows : std::max(style_.height, kOtherLines + 1) - kOtherLines;
    while (last_.size() > most) last_.pop_front();
    return draw();
  }
  std::string draw() const {
    constexpr char kHomeAndClear[] = "\x1b[H\x1b[2J";
    return kHomeAndClear + format_watch(counts_, last_, style_);
  }

 private:
  const TextStyle style_;
  WatchCounts counts_;
  std::deque<v1::Verdict> last_;
};

int watch(const PlumbOptions& options, const v1::Filter& filter, std::ostream& out, std::ostream& err) {
  const HoldSignals held;
  Client client(options.server, options.credentials);
  int code = kExitTypeI;
  std::int64_t seen = 0;
  const bool live = !options.json && options.style.width > 0;
  WatchScreen screen(options.style);
  if (!options.json && client.server_info().ok()) out << format_history(client.history());
  if (live) out << screen.draw() << std::flush;
  const EndOnSignal end_on_signal(held, [&client] { client.cancel(); });
  const absl::Status status = client.watch(filter, options.past, [&](v1::Verdict verdict) {
    code = worse_exit_code(code, exit_code(verdict.verdict()));
    if (live) {
      out << screen.add(std::move(verdict)) << std::flush;
    } else {
      out << (options.json ? json_line(verdict) : format_verdict_line(verdict)) << std::flush;
    }
    return options.count == 0 || ++seen < options.count;
  });
  if (!status.ok()) return fail(err, status);
  return code;
}

// Lines of both programs around the places that a verdict names, where they are found.
std::string source_text(const v1::Verdict& verdict, const PlumbOptions& options) {
  Sources sources(options.sources);
  std::string text;
  for (const SourceLines& found : sources.of(verdict)) {
    if (found.lines.empty()) continue;
    absl::StrAppend(&text, "  ", found.reference ? "reference" : "target", "  ", found.place, "\n");
    const int here = found.line;
    for (std::size_t i = 0; i < found.lines.size(); ++i) {
      const int number = found.first + static_cast<int>(i);
      const std::string line = absl::StrCat(number == here ? "  > " : "    ", number, "  ", printable(found.lines[i]));
      absl::StrAppend(&text, options.style.width > 0 ? fit(line, options.style.width) : line, "\n");
    }
  }
  return text;
}

int explain(Client& client, const PlumbOptions& options, const std::string& id, std::ostream& out, std::ostream& err) {
  const auto verdict = client.verdict(id);
  if (!verdict.ok()) return fail(err, verdict.status());
  if (options.json) {
    out << json_line(*verdict);
  } else {
    out << explain_verdict(*verdict, options.style, source_text(*verdict, options));
  }
  return exit_code(verdict->verdict());
}

}  // namespace

int exit_code(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OUTCOME_TYPE_I:
      return kExitTypeI;
    case v1::OUTCOME_TYPE_II:
      return kExitTypeII;
    default:
      return kExitInconclusive;
  }
}

int worse_exit_code(int a, int b) {
  for (const int code : {kExitError, kExitTypeII, kExitInconclusive}) {
    if (a == code || b == code) return code;
  }
  return kExitTypeI;
}

int run_plumb(const std::vector<std::string>& arguments, const PlumbOptions& options, std::ostream& out,
              std::ostream& err) {
  constexpr char kCommands[] =
      "jobs, verdicts, watch, follow [JOB], explain ID, report JOB, ui, replay FILE|ID, export-trace ID FILE, "
      "reproduce FILE|ID, "
      "golden or formats";
  if (arguments.empty()) return fail(err, absl::StrCat("expected a command: ", kCommands, "; see plumb --help"));
  const std::string& command = arguments.front();
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  if (command == "formats") {
    std::string wrong;
    out << list_formats(words, options.json, &wrong);
    return wrong.empty() ? kExitTypeI : fail(err, wrong);
  }
  if (command == "golden") {
    Client client(options.server, options.credentials);
    return golden(client, options, words, out, err);
  }
  if (command == "replay" || command == "export-trace" || command == "reproduce") {
    Client client(options.server, options.credentials);
    if (command == "replay") return replay(client, options, words, out, err);
    if (command == "reproduce") return reproduce(client, options, words, out, err);
    return export_trace(client, words, out, err);
  }
  if (command == "report") {
    Client client(options.server, options.credentials);
    return report(client, options, words, out, err);
  }
  if (command == "follow") {
    if (words.size() > 1) return fail(err, absl::StrCat("follow: expected a job or nothing, found ", words.size()));
    v1::Filter filter;
    if (!make_filter(options, &filter)) return fail(err, wrong_outcome(options));
    if (!words.empty()) filter.set_job(words[0]);
    return follow(options, filter, out, err);
  }
  const std::size_t expected = command == "explain" ? 1 : 0;
  if (command != "ui" && command != "jobs" && command != "verdicts" && command != "watch" && command != "explain") {
    return fail(err, absl::StrCat("there is no command \"", command, "\": expected ", kCommands));
  }
  if (words.size() != expected) {
    return fail(err, absl::StrCat(command, ": expected ",
                                  expected == 1 ? "the id of a verdict (project/job/run/rank/step)" : "no argument",
                                  ", found ", words.size()));
  }
  if (command == "ui") return ui(options, out, err);
  v1::Filter filter;
  if (!make_filter(options, &filter)) return fail(err, wrong_outcome(options));
  if (command == "watch") return watch(options, filter, out, err);
  Client client(options.server, options.credentials);
  if (command == "jobs") return jobs(client, options, out, err);
  if (command == "verdicts") return verdicts(client, options, filter, out, err);
  return explain(client, options, words[0], out, err);
}

}  // namespace plumbline
