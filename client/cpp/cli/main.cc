// plumb: asks a plumblined for jobs and verdicts.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "client/cpp/cli/plumb.h"

ABSL_FLAG(
    std::string, server, "",
    "Address of plumblined: unix:///PATH or HOST:PORT. Default: $PLUMBLINE_SERVER, else unix:///run/plumbline.sock");
ABSL_FLAG(std::string, token_file, "", "File of a bearer token. Default: $PLUMBLINE_TOKEN, else $PLUMBLINE_TOKEN_FILE");
ABSL_FLAG(bool, tls, false, "Encrypt TCP, believing the system's authorities. Default: $PLUMBLINE_TLS");
ABSL_FLAG(std::string, tls_ca, "", "Encrypt TCP, believing these authorities (PEM). Default: $PLUMBLINE_TLS_CA");
ABSL_FLAG(std::string, tls_cert, "", "Certificate of this client (PEM), for mutual TLS. Default: $PLUMBLINE_TLS_CERT");
ABSL_FLAG(std::string, tls_key, "", "Its private key. Default: $PLUMBLINE_TLS_KEY");
ABSL_FLAG(std::string, project, "", "Only of this project");
ABSL_FLAG(std::string, job, "", "Only of this job");
ABSL_FLAG(std::string, run, "", "Only of this run");
ABSL_FLAG(std::string, verdict, "", "Only TYPE_I, TYPE_II or INCONCLUSIVE");
ABSL_FLAG(std::int64_t, step_min, 0, "Only from this step on");
ABSL_FLAG(std::int64_t, step_max, 0, "Only up to this step, itself included; 0: no limit");
ABSL_FLAG(std::string, trace_id, "", "verdicts, watch: only of the step with this trace id");
ABSL_FLAG(bool, json, false, "One JSON object a line");
ABSL_FLAG(bool, all, false, "Also what passed, and every column however wide");
ABSL_FLAG(bool, past, false, "watch, follow: first the verdicts on disk, or in the stream");
ABSL_FLAG(std::string, profile, "", "replay, reproduce: under this device profile instead of the step's own");
ABSL_FLAG(std::string, o, "", "reproduce: the script to write; report: the page");
ABSL_FLAG(std::string, sources, ".",
          "report, ui, explain: folder under which the programs' lines are looked for, by file name; empty: nowhere");
ABSL_FLAG(bool, with_reproducer, false, "report: with the script that reproduces the first TYPE_II; takes an audit");
ABSL_FLAG(int, port, 0, "ui: port of 127.0.0.1 to serve on; 0: a free one");
ABSL_FLAG(std::int64_t, count, 0, "watch, follow: end after so many verdicts; 0: on a signal");
ABSL_FLAG(std::string, publish, "",
          "follow: the NATS server that daemons publish to, nats://HOST:PORT or tls://HOST:PORT, as their flag of this "
          "name; for tls:// --tls_ca, --tls_cert and --tls_key are of it. Default: what the daemon says");
ABSL_FLAG(std::string, publish_credentials, "",
          "follow: file that says who you are to that server. Default: $PLUMBLINE_PUBLISH_CREDENTIALS");

namespace {

constexpr char kUsage[] =
    R"(Asks a plumblined for jobs and verdicts.

  plumb jobs                  the jobs, with counts of their verdicts
  plumb verdicts              the verdicts that match, oldest first
  plumb watch                 new verdicts as they come, until a signal ends it;
                              on a terminal one screen that is drawn again
  plumb follow [JOB]          new verdicts of all daemons that publish to one
                              stream, until a signal ends it
  plumb explain ID            one verdict in full; ID is
                              project/job/run/rank/step
  plumb report JOB -o FILE    one job as a page: an HTML file that needs nothing
                              beside it
  plumb ui                    the same live, for all jobs, on a port of this
                              machine, until a signal ends it
  plumb replay FILE|ID        audits a step again: from a file, or from the
                              trace that its TYPE_II verdict keeps; with
                              --profile, as another device would be judged
  plumb export-trace ID FILE  writes the trace that a TYPE_II verdict keeps to a
                              file
  plumb reproduce FILE|ID -o repro.py
                              reduces a TYPE_II step to the operation at fault:
                              a script that runs it with PyTorch alone (large
                              tensors in repro.bin beside it) and exits with 0
                              where its result lies inside of what rounding
                              explains, with 2 where it does not
  plumb golden list           the golden runs, against which later ones are
                              judged
  plumb golden export NAME FILE, import FILE [NAME], remove NAME
                              of --project, "default" unless given; an import
                              takes the file's own
  plumb formats [NAME...]     ranges and precisions of number formats, as the
                              audit rounds with them; a NAME may be eXmY or
                              fixed<IL,FL>; asks no plumblined

Exit codes of verdicts, watch, follow, explain and replay, by the worst verdict
shown: 0 TYPE_I or none, 2 TYPE_II, 3 INCONCLUSIVE; 1 is an error (one line on
standard error). The others: 0 or 1.
)";

std::string server_address() {
  if (const std::string given = absl::GetFlag(FLAGS_server); !given.empty()) return given;
  const char* environment = std::getenv("PLUMBLINE_SERVER");
  return environment != nullptr && *environment != '\0' ? environment : "unix:///run/plumbline.sock";
}

// A terminal's size, and whether it takes colours (https://no-color.org).
plumbline::TextStyle style_of_output() {
  plumbline::TextStyle style;
  style.all = absl::GetFlag(FLAGS_all);
  if (isatty(STDOUT_FILENO) != 1) return style;
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  constexpr std::size_t kUsualWidth = 80;
  style.width = known ? size.ws_col : kUsualWidth;
  style.height = known ? size.ws_row : 0;
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? absl::string_view() : absl::string_view(value);
  };
  style.colour = set("NO_COLOR").empty() && set("TERM") != "dumb";
  return style;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(kUsage);
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [](absl::string_view file) { return absl::EndsWith(file, "cli/main.cc"); };
  absl::SetFlagsUsageConfig(usage);
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--token" || absl::StartsWith(argument, "--token=")) {
      std::cerr << "plumb: --token: expected no secret on a command line, which everybody may read: give "
                   "--token_file, or $PLUMBLINE_TOKEN\n";
      return plumbline::kExitError;
    }
  }
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  plumbline::PlumbOptions options;
  options.server = server_address();
  auto credentials = plumbline::read_credentials(
      {absl::GetFlag(FLAGS_token_file), absl::GetFlag(FLAGS_tls_ca), absl::GetFlag(FLAGS_tls_cert),
       absl::GetFlag(FLAGS_tls_key), absl::GetFlag(FLAGS_tls)},
      options.server);
  if (!credentials.ok()) {
    std::cerr << "plumb: " << credentials.status().message() << "\n";
    return plumbline::kExitError;
  }
  options.credentials = *std::move(credentials);
  options.project = absl::GetFlag(FLAGS_project);
  options.job = absl::GetFlag(FLAGS_job);
  options.run = absl::GetFlag(FLAGS_run);
  options.verdict = absl::GetFlag(FLAGS_verdict);
  options.step_min = absl::GetFlag(FLAGS_step_min);
  options.step_max = absl::GetFlag(FLAGS_step_max);
  options.trace_id = absl::GetFlag(FLAGS_trace_id);
  options.style = style_of_output();
  options.json = absl::GetFlag(FLAGS_json);
  options.past = absl::GetFlag(FLAGS_past);
  options.count = absl::GetFlag(FLAGS_count);
  options.stream.address = absl::GetFlag(FLAGS_publish);
  options.stream.credentials = absl::GetFlag(FLAGS_publish_credentials);
  if (absl::StartsWith(options.stream.address, "tls://")) {
    options.stream.authorities = absl::GetFlag(FLAGS_tls_ca);
    options.stream.certificate = absl::GetFlag(FLAGS_tls_cert);
    options.stream.key = absl::GetFlag(FLAGS_tls_key);
  }
  options.output = absl::GetFlag(FLAGS_o);
  options.sources = absl::GetFlag(FLAGS_sources);
  options.with_reproducer = absl::GetFlag(FLAGS_with_reproducer);
  options.port = absl::GetFlag(FLAGS_port);
  options.profile = absl::GetFlag(FLAGS_profile);
  const int code = plumbline::run_plumb({rest.begin() + 1, rest.end()}, options, std::cout, std::cerr);
  if (std::cout.flush()) return code;
  std::cerr << "plumb: cannot write to standard output\n";
  return plumbline::kExitError;
}
