// plumblined: flags, start, drain; nothing else.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
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
#include "commit.h"
#include "kernels/cpu/blas_check.h"
#include "kernels/cpu/parallel.h"
#include "server/access/policy.h"
#include "server/ingest/limits.h"
#include "server/log/log.h"
#include "server/serve/address.h"
#include "server/serve/daemon.h"
#include "server/serve/locate.h"
#include "server/store/publication.h"
#include "server/store/shared_history.h"

// jemalloc's settings, which it looks for by this name: what messages leave is kept for the next ones, and given back
// where none come for a fifth of a second. $MALLOC_CONF changes them.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas_ratio:1,dirty_decay_ms:200,muzzy_decay_ms:0,background_thread:true";
}

ABSL_FLAG(std::vector<std::string>, listen, {"unix:/run/plumbline.sock"},
          "Where to listen: unix:PATH or HOST:PORT; repeatable. TCP needs TLS or, on loopback, --insecure.");
ABSL_FLAG(bool, insecure, false,
          "Allow TCP without encryption, on loopback: whoever may run a program here may open runs and see those that "
          "came this way.");
ABSL_FLAG(std::string, tls_cert, "",
          "Certificate of TCP listeners, in PEM; then clients prove who they are by a token or a certificate.");
ABSL_FLAG(std::string, tls_key, "", "Its private key.");
ABSL_FLAG(std::string, tls_client_ca, "", "Authorities, in PEM, whose clients alone may connect (mutual TLS).");
ABSL_FLAG(std::string, socket_mode, "0600",
          "Permissions of unix sockets, octal: 0660 lets --socket-group in, 0666 all.");
ABSL_FLAG(std::string, socket_group, "", "Group of unix sockets, by name or number; empty: the daemon's.");
ABSL_FLAG(
    std::string, policy, "",
    "File that says who may do what in which project (proto/plumbline/v1/policy.proto); empty: everybody may open "
    "runs and sees his own.");
ABSL_FLAG(std::string, token_file, "",
          "File of bearer tokens, a line each: NAME SHA256 [EXPIRY]. Read again, as the policy is, at SIGHUP.");
ABSL_FLAG(std::string, log_format, "text", "\"text\", or \"json\": one object a line.");
ABSL_FLAG(std::string, log_level, "info", "Least level of what is logged: debug, info, warning or error.");
ABSL_FLAG(bool, check_config, false, "Check flags, policy and tokens, start nothing: exit status 0 if all is right.");
ABSL_FLAG(std::string, data_dir, "/var/lib/plumbline",
          "Verdicts, and the traces of reference runs and of TYPE_II verdicts.");
ABSL_FLAG(std::string, store, "",
          "History that daemons share, besides the data directory's own: postgresql://USER@HOST/DATABASE. No password: "
          "that is in ~/.pgpass, in the file of ?passfile=PATH or in $PGPASSWORD. Empty: none is shared.");
ABSL_FLAG(std::vector<std::string>, store_retention, {},
          "What to keep of the history of --store, whoever shipped it, as --retention: verdicts, errors and runs. One "
          "daemon at a time removes the oldest. Empty: everything.");
ABSL_FLAG(
    std::string, store_users, "node",
    "Whose runs of other daemons a caller owns, in the history of --store: \"node\": nobody's, a user or token of "
    "another node is somebody else; \"fleet\": those of his name, since all nodes agree on users and tokens.");
ABSL_FLAG(
    absl::Duration, nodes_timeout, absl::Minutes(5),
    "How long the daemons of a run whose ranks stream to several of them wait for each other's part of a step, in "
    "the history of --store; beyond, its verdict is INCONCLUSIVE and names the ranks that are missing.");
ABSL_FLAG(std::string, publish, "",
          "NATS server to whose stream PLUMBLINE verdicts are published: nats://HOST:PORT or, encrypted, "
          "tls://HOST:PORT; several of one cluster with commas. No password: --publish-credentials. Empty: none.");
ABSL_FLAG(std::string, publish_credentials, "",
          "File that says who the daemon is to --publish: NATS's own (.creds), or a line USER:PASSWORD, or a token. "
          "Empty: that line in $PLUMBLINE_PUBLISH_CREDENTIALS, if there is one.");
ABSL_FLAG(std::string, publish_ca, "", "Authorities, in PEM, that are believed for tls:// of --publish.");
ABSL_FLAG(std::string, publish_cert, "", "Certificate of the daemon, in PEM, for tls:// of --publish.");
ABSL_FLAG(std::string, publish_key, "", "Its private key.");
ABSL_FLAG(std::string, metrics_listen, "", "HOST:PORT for Prometheus (/metrics) and /healthz; empty: none.");
ABSL_FLAG(
    bool, metrics_public, false,
    "Allow --metrics-listen beyond loopback: whoever reaches it reads the names of projects and jobs, unencrypted.");
ABSL_FLAG(std::string, workers, "cpu",
          "What audits, one step each at a time: a list of \"cpu\", \"cpu:N\" (N of them) and \"cuda:N\" (a device).");
ABSL_FLAG(std::string, gpu_memory_limit, "10%",
          "Memory of each device for audits: a share of it, or bytes, such as 8GiB.");
ABSL_FLAG(std::int64_t, sliced_products, 0,
          "Multiplications from which on devices work out matrix products, 512 terms at a time, by the tensor cores' "
          "8-bit integers, such as 16777216: faster where a device has few fp64 units (L4, L40S, A10), and no bound of "
          "a verdict changes. 0: none.");
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
ABSL_FLAG(double, step_work_limit, 1e16,
          "Multiplications that computing one step may take, as estimated when it arrives; beyond, it is refused.");
ABSL_FLAG(absl::Duration, orphan_timeout, absl::Seconds(10), "For the audit of a step whose client has left.");
ABSL_FLAG(std::uint32_t, max_connections, 2048, "Connections at a time.");
ABSL_FLAG(std::uint32_t, max_connections_per_peer, 1024,
          "Of them, those of one user of this machine, or of one address.");
ABSL_FLAG(absl::Duration, connection_idle_timeout, absl::Minutes(5),
          "For a connection that no call uses; beyond, it is closed.");
ABSL_FLAG(absl::Duration, connection_age, absl::InfiniteDuration(),
          "How old a connection may be: its streams end at the next step, their clients open others and lose nothing. "
          "inf: any.");
ABSL_FLAG(std::uint32_t, max_streams, 1024, "Streams at a time.");
ABSL_FLAG(std::uint32_t, max_streams_per_user, 512, "Of them, those of one user, token or certificate.");
ABSL_FLAG(absl::Duration, open_timeout, absl::Seconds(10), "For a stream's first frame, and for taking its end.");
ABSL_FLAG(absl::Duration, step_timeout, absl::Seconds(60),
          "For the frames of one step, and a second more for each MiB of it that came.");
ABSL_FLAG(absl::Duration, reference_timeout, absl::Seconds(60), "How long a step waits for its reference's step.");

namespace {

using plumbline::DaemonOptions;
using plumbline::LogLevel;

// One line on standard error; the exit code.
int refuse(absl::string_view line) {
  std::fprintf(stderr, "plumblined: %.*s\n", static_cast<int>(line.size()), line.data());
  return 1;
}

// Nothing of what a job sends, and no token, goes over a network unless it is encrypted.
absl::Status check_safe(const plumbline::Address& address, const std::string& text) {
  if (address.kind == plumbline::Address::Kind::kUnix) return absl::OkStatus();
  if (!absl::GetFlag(FLAGS_tls_cert).empty()) return absl::OkStatus();
  if (!address.loopback) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: \"", text, "\" is not on loopback and there is no ",
                                                   "encryption: give --tls-cert and --tls-key"));
  }
  if (absl::GetFlag(FLAGS_insecure)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--listen: \"", text, "\" is open to every user of this machine: ",
                                                 "listen on a unix socket, or give --tls-cert and --tls-key, or "
                                                 "--insecure"));
}

absl::Status read_tls(DaemonOptions* options) {
  options->tls = {absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key), absl::GetFlag(FLAGS_tls_client_ca)};
  options->access = {absl::GetFlag(FLAGS_policy), absl::GetFlag(FLAGS_token_file)};
  if (!options->tls.given()) return absl::OkStatus();
  if (auto status = plumbline::check_tls(options->tls); !status.ok()) return status;
  if (!options->tls.client_ca.empty() || !options->access.token_file.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--tls-cert: expected --token-file or --tls-client-ca beside it, found neither: "
      "nothing would say who a client is");
}

absl::Status read_socket(DaemonOptions* options) {
  const std::string mode = absl::GetFlag(FLAGS_socket_mode), group = absl::GetFlag(FLAGS_socket_group);
  const char* const end = mode.data() + mode.size();
  unsigned bits = 0;
  const auto [parsed, error] = std::from_chars(mode.data(), end, bits, 8);
  if (error != std::errc() || parsed != end || bits > 0777 || (bits & 0600) != 0600) {
    return absl::InvalidArgumentError(
        absl::StrCat("--socket-mode: expected permissions from 0600 to 0777, found \"", mode, "\""));
  }
  options->socket_mode = bits;
  if (group.empty()) return absl::OkStatus();
  const auto number = plumbline::group_number(group);
  if (!number) {
    return absl::InvalidArgumentError(
        absl::StrCat("--socket-group: expected a group of this machine, found \"", group, "\""));
  }
  options->socket_group = *number;
  return absl::OkStatus();
}

absl::Status read_metrics_listen(DaemonOptions* options) {
  const std::string text = absl::GetFlag(FLAGS_metrics_listen);
  if (text.empty()) return absl::OkStatus();
  const auto address = plumbline::parse_address("--metrics-listen", text);
  if (!address.ok()) return address.status();
  if (address->kind != plumbline::Address::Kind::kTcp) {
    return absl::InvalidArgumentError(absl::StrCat("--metrics-listen: expected HOST:PORT, found \"", text, "\""));
  }
  if (!address->loopback && !absl::GetFlag(FLAGS_metrics_public)) {
    return absl::InvalidArgumentError(absl::StrCat("--metrics-listen: \"", text, "\" is not on loopback and there is ",
                                                   "no encryption: listen on 127.0.0.1, or give --metrics-public"));
  }
  options->metrics_listen = address->text;
  return absl::OkStatus();
}

absl::Status read_listen(DaemonOptions* options) {
  for (const std::string& text : absl::GetFlag(FLAGS_listen)) {
    auto address = plumbline::parse_address("--listen", text);
    if (!address.ok()) return address.status();
    if (auto safe = check_safe(*address, text); !safe.ok()) return safe;
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
  const std::int64_t sliced = absl::GetFlag(FLAGS_sliced_products);
  if (sliced < 0)
    return absl::InvalidArgumentError(absl::StrCat("--sliced-products: expected 0 or more, found ", sliced));
  options->sliced_work = sliced;
  options->threads = plumbline::cpu::processors();
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

absl::Status read_ages(DaemonOptions* options) {
  options->connection_idle_timeout = absl::GetFlag(FLAGS_connection_idle_timeout);
  options->connection_age = absl::GetFlag(FLAGS_connection_age);
  for (const auto& [flag, time] : {std::pair("--connection-idle-timeout", options->connection_idle_timeout),
                                   std::pair("--connection-age", options->connection_age)}) {
    if (time >= absl::Seconds(1)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": expected a second at least, found ", absl::FormatDuration(time)));
  }
  return absl::OkStatus();
}

absl::Status read_log() {
  const std::string format = absl::GetFlag(FLAGS_log_format), level = absl::GetFlag(FLAGS_log_level);
  const std::map<std::string, plumbline::LogFormat> formats = {{"text", plumbline::LogFormat::kText},
                                                               {"json", plumbline::LogFormat::kJson}};
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                  {"info", LogLevel::kInfo},
                                                  {"warning", LogLevel::kWarning},
                                                  {"error", LogLevel::kError}};
  if (formats.count(format) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--log-format: expected text or json, found \"", format, "\""));
  }
  if (levels.count(level) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-level: expected debug, info, warning or error, found \"", level, "\""));
  }
  plumbline::set_log(formats.at(format), levels.at(level));
  return absl::OkStatus();
}

absl::Status read_publish(DaemonOptions* options) {
  plumbline::NatsSettings& server = options->publish;
  server.address = absl::GetFlag(FLAGS_publish);
  server.credentials = absl::GetFlag(FLAGS_publish_credentials);
  server.authorities = absl::GetFlag(FLAGS_publish_ca);
  server.certificate = absl::GetFlag(FLAGS_publish_cert);
  server.key = absl::GetFlag(FLAGS_publish_key);
  if (server.address.empty()) {
    if ((server.credentials + server.authorities + server.certificate + server.key).empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--publish: expected an address beside its credentials, found none");
  }
  const absl::Status checked = plumbline::check_nats_settings(server);
  return checked.ok() ? checked : absl::Status(checked.code(), absl::StrCat("--publish: ", checked.message()));
}

absl::Status read_flags(DaemonOptions* options) {
  if (auto status = read_log(); !status.ok()) return status;
  if (auto status = read_listen(options); !status.ok()) return status;
  if (auto status = read_tls(options); !status.ok()) return status;
  if (auto status = read_socket(options); !status.ok()) return status;
  if (auto status = read_metrics_listen(options); !status.ok()) return status;
  if (auto status = read_workers(options); !status.ok()) return status;
  if (auto status = read_memory(options); !status.ok()) return status;
  if (auto status = read_ages(options); !status.ok()) return status;
  const auto keep = plumbline::parse_retention(absl::GetFlag(FLAGS_retention));
  if (!keep.ok()) return absl::InvalidArgumentError(absl::StrCat("--retention: ", keep.status().message()));
  options->keep = *keep;
  options->store = absl::GetFlag(FLAGS_store);
  if (!options->store.empty()) {
    const absl::Status checked = plumbline::check_store_url(options->store);
    if (!checked.ok()) return absl::InvalidArgumentError(absl::StrCat("--store: ", checked.message()));
  }
  const auto store_keep = plumbline::parse_retention(absl::GetFlag(FLAGS_store_retention));
  if (!store_keep.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--store-retention: ", store_keep.status().message()));
  }
  if (store_keep->golden.any()) {
    return absl::InvalidArgumentError(
        "--store-retention: expected verdicts, errors or runs, found golden: a golden run goes with the one on its "
        "node (plumb golden remove)");
  }
  options->store_keep = store_keep->retention;
  options->nodes_timeout = absl::GetFlag(FLAGS_nodes_timeout);
  if (options->nodes_timeout <= absl::ZeroDuration() || options->nodes_timeout > absl::Hours(24 * 365)) {
    return absl::InvalidArgumentError(absl::StrCat("--nodes-timeout: expected more than 0 and at most a year, found ",
                                                   absl::FormatDuration(options->nodes_timeout)));
  }
  const std::string users = absl::GetFlag(FLAGS_store_users);
  options->store_users_are_shared = users == "fleet";
  if (users != "fleet" && users != "node") {
    return absl::InvalidArgumentError(absl::StrCat("--store-users: expected node or fleet, found \"", users, "\""));
  }
  if (auto status = read_publish(options); !status.ok()) return status;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), "server/main.cc")) {
      options->flags.emplace_back(std::string(name), flag->CurrentValue());
    }
  }
  std::sort(options->flags.begin(), options->flags.end());
  options->step_work_limit = absl::GetFlag(FLAGS_step_work_limit);
  if (!(options->step_work_limit > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--step-work-limit: expected a number above 0, found ", options->step_work_limit));
  }
  options->data_dir = absl::GetFlag(FLAGS_data_dir);
  options->reference_timeout = absl::GetFlag(FLAGS_reference_timeout);
  options->audit_timeout = absl::GetFlag(FLAGS_audit_timeout);
  options->orphan_timeout = absl::GetFlag(FLAGS_orphan_timeout);
  options->connections_max = absl::GetFlag(FLAGS_max_connections);
  options->connections_of_a_peer_max = absl::GetFlag(FLAGS_max_connections_per_peer);
  options->streams_max = absl::GetFlag(FLAGS_max_streams);
  options->streams_of_a_user_max = absl::GetFlag(FLAGS_max_streams_per_user);
  options->open_timeout = absl::GetFlag(FLAGS_open_timeout);
  options->step_timeout = absl::GetFlag(FLAGS_step_timeout);
  options->profiles = absl::GetFlag(FLAGS_profiles);
  if (options->profiles.empty()) options->profiles = plumbline::installed_profiles();
  options->version = PLUMBLINE_VERSION;
  options->commit = PLUMBLINE_COMMIT;
  return absl::OkStatus();
}

// As many as the system lets a process have: each connection is one, and each file.
void allow_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void tell(LogLevel level, std::string_view event, std::string message) {
  plumbline::log_event(level, event, {{"message", std::move(message)}});
}

// Ends the process if it drains for longer: some work, such as one large product, cannot be interrupted. What was
// answered is durable, and what was not is sent again.
void cut_after(absl::Duration timeout) {
  const absl::Duration last = timeout + std::max(absl::Seconds(1), timeout / 10);
  std::thread([last] {
    absl::SleepFor(last);
    tell(LogLevel::kError, "cut_off", "an audit went on beyond --drain-timeout");
    spdlog::default_logger()->flush();
    std::_Exit(1);
  }).detach();
}

// The thread that waits for the signals below.
pthread_t waiting;

// Leaves SIGTERM, SIGINT and SIGHUP to the calling thread, which is to wait for them with sigtimedwait(). Threads that
// start from now on inherit the mask. A library may have started others before main() did (OpenBLAS does): the system
// gives them the signal where this thread is busy, and they hand it on.
sigset_t wait_here_for_signals() {
  waiting = pthread_self();
  struct sigaction hand_on {};
  hand_on.sa_handler = [](int received) { pthread_kill(waiting, received); };
  hand_on.sa_flags = SA_RESTART;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, each);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  for (const int each : {SIGTERM, SIGINT, SIGHUP}) sigaction(each, &hand_on, nullptr);
  return signals;
}

// OpenBLAS reads what kernels to take before main() starts: where it chose badly, or what it took multiplies wrongly,
// the program starts once more. Its command line is the process's own, since a loader may have been asked to start it.
void take_better_products(bool multiplies_wrongly) {
  constexpr char kChoice[] = "OPENBLAS_CORETYPE";
  const std::string better = plumbline::cpu::better_kernels(plumbline::cpu::blas_kernels(), multiplies_wrongly,
                                                            plumbline::cpu::processor_vectors());
  const char* asked = std::getenv(kChoice);
  if (better.empty() || (asked != nullptr && (!multiplies_wrongly || better == asked))) return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> given;
  for (std::string argument; std::getline(file, argument, '\0');) given.push_back(argument);
  std::vector<char*> arguments;
  for (std::string& argument : given) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  // By its path: the process would be called "exe" if it were started by the link.
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  setenv(kChoice, better.c_str(), 1);
  if (!given.empty() && !error) execv(program.c_str(), arguments.data());  // Returns where it fails: slowly, then.
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Tells rounding from bugs in training runs.");
  absl::FlagsUsageConfig usage;
  usage.version_string = [] {
    return std::string("plumblined ") + PLUMBLINE_VERSION + " (" + PLUMBLINE_COMMIT + ")\n";
  };
  usage.contains_help_flags = [](absl::string_view file) { return absl::EndsWith(file, "server/main.cc"); };
  absl::SetFlagsUsageConfig(usage);
  const std::vector<std::string> given = plumbline::flags_for_absl(argc, argv);
  std::vector<char*> arguments;
  for (const std::string& argument : given) arguments.push_back(const_cast<char*>(argument.c_str()));
  const std::vector<char*> positional = absl::ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  if (positional.size() > 1) return refuse(absl::StrCat("unexpected argument \"", positional[1], "\""));

  DaemonOptions options;
  if (auto status = read_flags(&options); !status.ok()) return refuse(status.message());
  if (absl::GetFlag(FLAGS_check_config)) {
    const auto access = plumbline::Access::open(options.access);
    if (!access.ok()) return refuse(access.status().message());
    std::printf("plumblined: the configuration is right\n");
    return 0;
  }
  const std::string wrong = plumbline::cpu::wrong_products();
  take_better_products(!wrong.empty());
  if (!wrong.empty())
    return refuse(absl::StrCat("OpenBLAS multiplies wrongly on this processor with its kernels for ",
                               plumbline::cpu::blas_kernels(), " (", wrong,
                               "): set OPENBLAS_CORETYPE to others, such as Haswell, or install another version"));
  umask(0077);  // Sockets and files are their owner's.
  allow_descriptors();
  plumbline::cpu::set_threads(options.threads);

  const sigset_t signals = wait_here_for_signals();  // Before the daemon's threads start.
  signal(SIGPIPE, SIG_IGN);

  auto daemon = plumbline::Daemon::start(options);
  if (!daemon.ok()) return refuse(daemon.status().message());
  const std::string& metrics = (*daemon)->metrics_address();
  tell(LogLevel::kInfo, "started",
       absl::StrCat("plumblined ", options.version, " listens on ", absl::StrJoin((*daemon)->addresses(), ", "),
                    metrics.empty() ? "" : absl::StrCat(", metrics on ", metrics), "; data in ", options.data_dir,
                    "; workers ", (*daemon)->workers(), " on ", options.threads, " threads, products by OpenBLAS for ",
                    plumbline::cpu::blas_kernels(), "; ", options.memory_bytes >> 20, " MiB memory; profiles ",
                    absl::StrJoin((*daemon)->profile_names(), ", ")));
  spdlog::default_logger()->flush();

  int received = 0;
  constexpr timespec kTick{1, 0};
  for (;;) {
    received = sigtimedwait(&signals, nullptr, &kTick);
    if (received == SIGTERM || received == SIGINT) break;
    (*daemon)->tick();
    if (received != SIGHUP) continue;
    const absl::Status reloaded = (*daemon)->reload();
    if (reloaded.ok()) {
      tell(LogLevel::kInfo, "reloaded", "SIGHUP: policy and tokens were read again");
    } else {
      tell(LogLevel::kError, "not_reloaded",
           absl::StrCat("SIGHUP: policy and tokens stay as they were: ", reloaded.message()));
    }
    spdlog::default_logger()->flush();
  }
  tell(LogLevel::kInfo, "draining",
       absl::StrCat(received == SIGTERM ? "SIGTERM" : "SIGINT", ": draining for at most ",
                    absl::FormatDuration(absl::GetFlag(FLAGS_drain_timeout))));
  cut_after(absl::GetFlag(FLAGS_drain_timeout));
  const bool clean = (*daemon)->drain(absl::GetFlag(FLAGS_drain_timeout));
  tell(LogLevel::kInfo, "stopped",
       clean ? "all that was queued is done" : "what was not finished in time will be sent again by its job");
  return clean ? 0 : 1;
}
