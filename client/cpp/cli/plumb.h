// The plumb command, apart from main(), so that tests can run it.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "client/cpp/credentials.h"
#include "client/cpp/format.h"
#include "client/cpp/nats/connect.h"
#include "plumbline/v1/verdict.pb.h"

namespace plumbline {

// What scripts see. The worst of several verdicts decides: TYPE_II, then INCONCLUSIVE, then TYPE_I.
inline constexpr int kExitTypeI = 0;  // Or nothing to judge.
inline constexpr int kExitError = 1;
inline constexpr int kExitTypeII = 2;
inline constexpr int kExitInconclusive = 3;

int exit_code(v1::Outcome outcome);
int worse_exit_code(int a, int b);

struct PlumbOptions {
  std::string server;
  Credentials credentials;
  std::string project, job, run, verdict, trace_id;
  std::int64_t step_min = 0, step_max = 0;
  bool json = false;
  TextStyle style;         // How what is printed for people looks; a width says that it goes to a terminal.
  bool past = false;       // watch, follow: first what is on disk.
  std::int64_t count = 0;  // watch, follow: end after so many verdicts; 0: never.
  NatsSettings stream;     // follow: where it is; without an address the daemon is asked.
  std::string profile;     // replay, reproduce: under this one; empty: the step's own.
  std::string output;      // reproduce: the script to write; report: the page.
  std::string sources;  // report, ui, explain: folder in which the audited programs' lines are looked for; empty: none.
  bool with_reproducer = false;  // report: makes the first TYPE_II step's, an audit of its own.
  int port = 0;                  // ui: on 127.0.0.1; 0: a free one.
};

// Runs a command ("jobs", "verdicts", ... and its arguments) and returns its exit code.
// Errors are one line on `err`.
int run_plumb(const std::vector<std::string>& arguments, const PlumbOptions& options, std::ostream& out,
              std::ostream& err);

}  // namespace plumbline
