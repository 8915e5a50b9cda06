// plumblined: flags, start, drain; nothing else.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/cpu/parallel.h"
#include "server/ingest/limits.h"
#include "server/serve/address.h"
#include "server/serve/daemon.h"
#include "server/serve/locate.h"

ABSL_FLAG(std::vector<std::string>, listen, {"unix:/run/plumbline.sock"},
          "Where to listen: unix:PATH or HOST:PORT; repeatable. TCP on loopback only, unless --insecure.");
ABSL_FLAG(bool, insecure, false, "Allow TCP beyond loopback, without encryption or authentication.");
ABSL_FLAG(std::string, data_dir, "/var/lib/plumbline",
          "Verdicts, and the traces of reference runs and of TYPE_II verdicts.");
ABSL_FLAG(std::string, metrics_listen, "", "HOST:PORT for Prometheus (/metrics) and /healthz; empty: none.");
ABSL_FLAG(std::string, workers, "cpu",
          "What audits, one step each at a time: a list of \"cpu\", \"cpu:N\" (N of them) and \"cuda:N\" (a device).");
ABSL_FLAG(std::string, gpu_memory_limit, "10%",
          "Memory of each device for audits: a share of it, or bytes, such as 8GiB.");
ABSL_FLAG(std::string, memory_limit, "", "Memory for steps and audits, such as 8GiB; empty: half of the machine's.");
ABSL_FLAG(std::string, trace_quota, "10GiB",
          "Disk for traces: half of it for those of reference runs, half for those of TYPE_II verdicts; the oldest are "
          "evicted.");
ABSL_FLAG(
    std::string, disk_reserve, "256MiB",
    "Free space of the data directory's disk that is left to verdicts: no trace and no golden step is written that "
    "would take of it.");
ABSL_FLAG(std::vector<std::string>, retention, {},
          "What is kept, a list of KIND=LIMIT: verdicts=90d (an age), verdicts=1000000, verdicts=20GiB (of the "
          "database), errors and runs by age or number, golden by all three; the oldest go. Empty: everything.");
ABSL_FLAG(std::string, profiles, "", "Directory of device profiles; empty: the installed ones.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30), "For queued audits when the daemon is told to stop.");
ABSL_FLAG(absl::Duration, audit_timeout, absl::Minutes(5), "For the audit of one step; beyond, it is INCONCLUSIVE.");
ABSL_FLAG(absl::Duration, orphan_timeout, absl::Seconds(10), "For the audit of a step whose client has left.");
ABSL_FLAG(std::uint32_t, max_streams, 1024, "Streams at a time.");
ABSL_FLAG(absl::Duration, open_timeout, absl::Seconds(10), "For a stream's first frame, and for taking its end.");
ABSL_FLAG(absl::Duration, step_timeout, absl::Seconds(60),
          "For the frames of one step, and a second more for each MiB of it that came.");
ABSL_FLAG(absl::Duration, reference_timeout, absl::Seconds(60), "How long a step waits for its reference's step.");

namespace {

using plumbline::DaemonOptions;

// One line on standard error; the exit code.
int refuse(absl::string_view line) {
  std::fprintf(stderr, "plumblined: %.*s\n", static_cast<int>(line.size()), line.data());
  return 1;
}

absl::Status read_listen(DaemonOptions* options) {
  for (const std::string& text : absl::GetFlag(FLAGS_listen)) {
    auto address = plumbline::parse_address(text, absl::GetFlag(FLAGS_insecure));
    if (!address.ok()) return address.status();
    options->listen.push_back(*std::move(address));
  }
  if (options->listen.empty()) return absl::InvalidArgumentError("--listen: expected an address, found none");
  return absl::OkStatus();
}

absl::Status read_workers(DaemonOptions* options) {
  auto workers = plumbline::parse_workers(absl::GetFlag(FLAGS_workers));
  if (!workers.ok()) return workers.status();
  options->workers = *std::move(workers);
  const auto memory = plumbline::parse_device_memory(absl::GetFlag(FLAGS_gpu_memory_limit));
  if (!memory.ok()) return memory.status();
  options->device_memory = *memory;
  options->threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return absl::OkStatus();
}

absl::Status read_memory(DaemonOptions* options) {
  const std::string text = absl::GetFlag(FLAGS_memory_limit);
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  options->memory_bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
  if (!text.empty()) {
    const auto bytes = plumbline::parse_bytes(text);
    if (!bytes.ok()) return absl::InvalidArgumentError(absl::StrCat("--memory-limit: ", bytes.status().message()));
    options->memory_bytes = *bytes;
  }
  if (options->memory_bytes < plumbline::limits::kMemoryBytesMin) {
    return absl::InvalidArgumentError(absl::StrCat("--memory-limit: expected at least ",
                                                   plumbline::limits::kMemoryBytesMin, " bytes, found ",
                                                   options->memory_bytes));
  }
  const auto quota = plumbline::parse_bytes(absl::GetFlag(FLAGS_trace_quota));
  if (!quota.ok()) return absl::InvalidArgumentError(absl::StrCat("--trace-quota: ", quota.status().message()));
  options->trace_quota_bytes = *quota;
  const auto reserve = plumbline::parse_bytes(absl::GetFlag(FLAGS_disk_reserve));
  if (!reserve.ok()) return absl::InvalidArgumentError(absl::StrCat("--disk-reserve: ", reserve.status().message()));
  options->disk_reserve_bytes = *reserve;
  return absl::OkStatus();
}

absl::Status read_flags(DaemonOptions* options) {
  if (auto status = read_listen(options); !status.ok()) return status;
  if (auto status = read_workers(options); !status.ok()) return status;
  if (auto status = read_memory(options); !status.ok()) return status;
  const auto keep = plumbline::parse_retention(absl::GetFlag(FLAGS_retention));
  if (!keep.ok()) return absl::InvalidArgumentError(absl::StrCat("--retention: ", keep.status().message()));
  options->keep = *keep;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), "server/main.cc")) {
      options->flags.emplace_back(std::string(name), flag->CurrentValue());
    }
  }
  std::sort(options->flags.begin(), options->flags.end());
  options->data_dir = absl::GetFlag(FLAGS_data_dir);
  options->metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options->reference_timeout = absl::GetFlag(FLAGS_reference_timeout);
  options->audit_timeout = absl::GetFlag(FLAGS_audit_timeout);
  options->orphan_timeout = absl::GetFlag(FLAGS_orphan_timeout);
  options->streams_max = absl::GetFlag(FLAGS_max_streams);
  options->open_timeout = absl::GetFlag(FLAGS_open_timeout);
  options->step_timeout = absl::GetFlag(FLAGS_step_timeout);
  options->profiles = absl::GetFlag(FLAGS_profiles);
  if (options->profiles.empty()) options->profiles = plumbline::installed_profiles();
  options->version = PLUMBLINE_VERSION;
  return absl::OkStatus();
}

// Ends the process if it drains for longer: some work, such as one large product, cannot be interrupted. What was
// answered is durable, and what was not is sent again.
void cut_after(absl::Duration timeout) {
  const absl::Duration last = timeout + std::max(absl::Seconds(1), timeout / 10);
  std::thread([last] {
    absl::SleepFor(last);
    spdlog::error("cut off: an audit went on beyond --drain-timeout");
    spdlog::default_logger()->flush();
    std::_Exit(1);
  }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Tells rounding from bugs in training runs: takes their traces, answers with verdicts.");
  absl::FlagsUsageConfig usage;
  usage.version_string = [] { return std::string("plumblined ") + PLUMBLINE_VERSION + "\n"; };
  usage.contains_help_flags = [](absl::string_view file) { return absl::EndsWith(file, "server/main.cc"); };
  absl::SetFlagsUsageConfig(usage);
  const std::vector<std::string> given = plumbline::flags_for_absl(argc, argv);
  std::vector<char*> arguments;
  for (const std::string& argument : given) arguments.push_back(const_cast<char*>(argument.c_str()));
  const std::vector<char*> positional = absl::ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  if (positional.size() > 1) return refuse(absl::StrCat("unexpected argument \"", positional[1], "\""));

  DaemonOptions options;
  if (auto status = read_flags(&options); !status.ok()) return refuse(status.message());
  umask(0077);  // Sockets and files are their owner's.
  plumbline::cpu::set_threads(options.threads);

  // Before any thread starts, so that all of them leave the signals to this one.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  auto daemon = plumbline::Daemon::start(options);
  if (!daemon.ok()) return refuse(daemon.status().message());
  spdlog::info("plumblined {} listens on {}{}; data in {}; workers {} on {} threads; {} MiB memory; profiles {}",
               options.version, absl::StrJoin((*daemon)->addresses(), ", "),
               (*daemon)->metrics_address().empty() ? "" : absl::StrCat(", metrics on ", (*daemon)->metrics_address()),
               options.data_dir, (*daemon)->workers(), options.threads, options.memory_bytes >> 20,
               absl::StrJoin((*daemon)->profile_names(), ", "));
  spdlog::default_logger()->flush();

  int received = 0;
  sigwait(&signals, &received);
  spdlog::info("{}: draining for at most {}", received == SIGTERM ? "SIGTERM" : "SIGINT",
               absl::FormatDuration(absl::GetFlag(FLAGS_drain_timeout)));
  cut_after(absl::GetFlag(FLAGS_drain_timeout));
  const bool clean = (*daemon)->drain(absl::GetFlag(FLAGS_drain_timeout));
  spdlog::info("stopped{}", clean ? "" : "; what was not finished in time will be sent again by its job");
  return 0;
}
