#include "server/serve/daemon.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/buffer_pool.h"
#include "server/fault/fault.h"
#include "server/ingest/disk.h"
#include "server/ingest/limits.h"
#include "server/log/log.h"
#include "server/metrics/http.h"
#include "server/serve/archive_service.h"
#include "server/serve/audit_service.h"
#include "server/serve/call_counts.h"
#include "server/serve/inherited.h"
#include "server/serve/listener.h"
#include "server/serve/paging.h"
#include "server/serve/sharing.h"
#include "server/serve/verdict_service.h"
#include "server/work/cuda.h"
#include "server/work/gpu.h"
#include "server/work/steady.h"

namespace plumbline {

using absl::StrCat;

namespace {

constexpr std::int64_t kQueuedReadyMax = 256;  // Steps that wait; more is not worked off before jobs drop steps.
constexpr absl::Duration kLastShipping = absl::Seconds(2);
constexpr absl::Duration kReleaseEvery = absl::Seconds(20);

constexpr int kHandshakeMs = 10000;
constexpr int kStreamsOfAConnectionMax = 256;

// As gRPC takes times: INT_MAX is none.
int milliseconds(absl::Duration time) {
  return static_cast<int>(std::min<std::int64_t>(absl::ToInt64Milliseconds(time), INT_MAX));
}

// What goes on for so long after its connection got too old is cut. A stream ends by itself before that: it may be as
// old as its connection was when it began, and once it is too old it has what is left of one step before it.
absl::Duration age_grace(const DaemonOptions& options) {
  return options.connection_age + options.step_timeout + options.reference_timeout + options.audit_timeout;
}

}  // namespace

// Destroyed by drain() in the order that it gives; what it leaves knows nothing of one another.
struct Daemon::State {
  explicit State(const DaemonOptions& options)
      : options(options),
        metrics(options.version, options.commit, options.workers.cuda.empty() ? "cpu" : "cuda"),
        memory(options.memory_bytes / limits::kIngestShare),
        buffers(BufferPool::create(options.memory_bytes / limits::kBufferShare)),
        connections(options.connections_max, options.connections_of_a_peer_max) {}

  const DaemonOptions options;
  Metrics metrics;
  MemoryBudget memory;
  const std::shared_ptr<BufferPool> buffers;  // They hold payloads.
  ProfileRegistry profiles;
  RunRegistry runs;
  std::unique_ptr<Access> access;
  std::unique_ptr<ProjectUse> projects;
  std::unique_ptr<TraceStore> references;
  std::unique_ptr<TraceStore> kept;  // It keeps the traces of TYPE_II verdicts.
  std::unique_ptr<GoldenStore> golden;
  std::unique_ptr<GoldenStore> pairs;  // It keeps what other daemons' runs are paired with.
  std::unique_ptr<StepPipeline> pipeline;
  std::unique_ptr<SqlStore> store;
  std::unique_ptr<Sharing> sharing;
  std::unique_ptr<SerialExecutor> disk = std::make_unique<SerialExecutor>();
  std::unique_ptr<SerialExecutor> asking =
      std::make_unique<SerialExecutor>();  // The shared history, which may be slow.
  std::unique_ptr<Workers> workers;
  std::unique_ptr<AuditService> audits;
  std::unique_ptr<VerdictService> verdicts;
  std::unique_ptr<ArchiveService> archive;
  std::unique_ptr<grpc::Server> server;
  Connections connections;
  // Give their connections to the server, those by TCP through the acceptor.
  std::vector<std::unique_ptr<Listener>> listeners;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> tcp;
  std::unique_ptr<MetricsServer> metrics_server;
  std::unique_ptr<Housekeeping> housekeeping;
  bool drained = false;
  bool was_ready = true;
  absl::Time released = steady_now();  // When memory that nobody needed was given back.

  std::vector<std::pair<std::string, std::string>> readiness() const;
  absl::Status listen(grpc::ServerBuilder* builder);
  void serve();
};

std::vector<std::pair<std::string, std::string>> Daemon::State::readiness() const {
  std::vector<std::pair<std::string, std::string>> checks;
  checks.emplace_back("draining", audits->draining() ? "the daemon was told to stop" : "");
  checks.emplace_back("store", store->takes_records() ? "" : "the last verdicts could not be written; see the log");
  const absl::Status room = check_reserve(options.data_dir, 0, options.disk_reserve_bytes);
  checks.emplace_back("disk", std::string(room.message()));
  checks.emplace_back("workers", workers->any_left() ? "" : "none is left");
  const std::int64_t queued = workers->queued();
  checks.emplace_back("queue", queued <= kQueuedReadyMax ? "" : StrCat(queued, " steps wait for a worker"));
  return checks;
}

namespace {

// Takes the socket that is bound to `path` out of those that were inherited; -1: there is none.
int take_socket(std::vector<InheritedSocket>* inherited, const std::string& path) {
  const auto found = std::find_if(inherited->begin(), inherited->end(),
                                  [&path](const InheritedSocket& socket) { return socket.path == path; });
  if (found == inherited->end()) return -1;
  const int descriptor = found->descriptor;
  inherited->erase(found);
  return descriptor;
}

}  // namespace

absl::Status Daemon::State::listen(grpc::ServerBuilder* builder) {
  auto inherited = inherited_sockets();
  if (!inherited.ok()) return inherited.status();
  bool remote = false;
  for (const Address& address : options.listen) {
    const bool tcp = address.kind == Address::Kind::kTcp;
    remote = remote || tcp;
    auto listener = Listener::listen({address, options.socket_mode, options.socket_group,
                                      tcp && options.tls.given() ? Protocol::kTls : Protocol::kHttp2,
                                      tcp ? -1 : take_socket(&*inherited, address.path)});
    if (!listener.ok()) return listener.status();
    listeners.push_back(*std::move(listener));
  }
  if (!inherited->empty()) {
    return absl::FailedPreconditionError(
        StrCat("$LISTEN_FDS: expected sockets that --listen names, found unix:", inherited->front().path));
  }
  if (!remote) return absl::OkStatus();
  tcp = builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options.tls.given() ? tls_credentials(options.tls) : grpc::InsecureServerCredentials());
  return absl::OkStatus();
}

// Whoever comes by a unix socket is known by it (identify.h), and so given to gRPC as a descriptor.
void Daemon::State::serve() {
  const auto by_unix = [this](int connection) { grpc::AddInsecureChannelFromFd(server.get(), connection); };
  const auto by_tcp = [this](int connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters made;
    made.fd = connection;
    tcp->HandleNewConnection(&made);
  };
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    const bool tcp = options.listen[i].kind == Address::Kind::kTcp;
    listeners[i]->serve(tcp ? Listener::Give(by_tcp) : Listener::Give(by_unix), &connections);
  }
}

namespace {

absl::Status make_data_dir(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return absl::PermissionDeniedError(StrCat("--data-dir: cannot create ", path, ": ", error.message()));
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return absl::PermissionDeniedError(StrCat("--data-dir: cannot write to ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceWorker>>> open_devices(const DaemonOptions& options,
                                                                        Metrics* metrics) {
  std::vector<std::unique_ptr<DeviceWorker>> devices;
  for (const int index : options.workers.cuda) {
    auto device = DeviceWorker::open(
        StrCat("cuda:", index), [index, work = options.sliced_work] { return open_cuda(index, work); },
        [&](std::int64_t total_bytes) { return device_memory_bytes(options.device_memory, total_bytes); });
    if (!device.ok()) return absl::Status(device.status().code(), StrCat("--workers: ", device.status().message()));
    const std::string uuid = gpu_uuid(cuda_uuid(index));
    const auto number = gpu_number(uuid);
    metrics->set_worker_gpu((*device)->name(), {number ? StrCat(*number) : "", uuid});
    devices.push_back(*std::move(device));
  }
  return devices;
}

v1::ServerInfo server_info(const DaemonOptions& options) {
  v1::ServerInfo info;
  info.set_version(options.version);
  info.set_commit(options.commit);
  info.mutable_started()->set_seconds(absl::ToUnixSeconds(absl::Now()));
  const auto step_work_max = static_cast<std::uint64_t>(std::min(options.step_work_limit, 1e18));
  const std::pair<const char*, std::uint64_t> all[] = {{"message_bytes_max", limits::kMessageBytesMax},
                                                       {"chunk_bytes_max", limits::kChunkBytesMax},
                                                       {"region_chunk_bytes_max", limits::kRegionChunkBytesMax},
                                                       {"step_bytes_max", options.memory_bytes / limits::kStepShare},
                                                       {"audit_bytes_max", limits::audit_bytes(options.memory_bytes)},
                                                       {"step_work_max", step_work_max},
                                                       {"steps_queued_max", limits::kStepsQueuedMax},
                                                       {"runs_max", limits::kRunsMax},
                                                       {"connections_max", options.connections_max},
                                                       {"connections_of_a_peer_max", options.connections_of_a_peer_max},
                                                       {"streams_max", options.streams_max},
                                                       {"streams_of_a_user_max", options.streams_of_a_user_max},
                                                       {"ranks_max", limits::kRanksMax},
                                                       {"ranks_joined_max", limits::kRanksJoinedMax},
                                                       // Who does not say it does not know OpenJobRequest.ranks_here.
                                                       {"ranks_here_max", limits::kRanksMax},
                                                       {"identity_bytes_max", limits::kIdentityBytesMax},
                                                       {"missed_reasons_max", limits::kMissedReasonsMax},
                                                       {"records_queued_max", VerdictStore::kPendingMax},
                                                       {"page_bytes_max", VerdictStore::kPageBytesMax},
                                                       {"queries_at_one_time_max", VerdictStore::kReaders},
                                                       {"queries_waiting_max", VerdictService::kQueriesMax},
                                                       {"watches_max", VerdictService::kWatchesMax},
                                                       {"page_size_max", kPageMax},
                                                       {"archive_calls_max", ArchiveService::kCallsMax},
                                                       {"uploads_max", ArchiveService::kUploadsMax},
                                                       {"streams_of_a_connection_max", kStreamsOfAConnectionMax},
                                                       {"handshake_ms_max", kHandshakeMs}};
  for (const auto& [name, value] : all) {
    auto* limit = info.add_limits();
    limit->set_name(name);
    limit->set_value(static_cast<std::uint64_t>(value));
  }
  const std::pair<const char*, absl::Duration> times[] = {{"connection_idle_ms_max", options.connection_idle_timeout},
                                                          {"connection_age_ms_max", options.connection_age},
                                                          {"connection_age_grace_ms_max", age_grace(options)}};
  for (const auto& [name, time] : times) {
    if (time == absl::InfiniteDuration()) continue;
    auto* limit = info.add_limits();
    limit->set_name(name);
    limit->set_value(static_cast<std::uint64_t>(milliseconds(time)));
  }
  for (const auto& [name, value] : options.flags) {
    auto* flag = info.add_flags();
    flag->set_name(name);
    flag->set_value(value);
  }
  return info;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::start(const DaemonOptions& options) {
  auto state = std::make_unique<State>(options);
  auto access = Access::open(options.access);
  if (!access.ok()) return access.status();
  state->access = *std::move(access);
  try {
    state->profiles = ProfileRegistry::load(options.profiles);
  } catch (const std::exception& failure) {
    return absl::InvalidArgumentError(StrCat("--profiles: ", failure.what()));
  }
  if (state->profiles.find("ieee") == nullptr) {
    return absl::NotFoundError(StrCat("--profiles: no profile \"ieee\" in ", options.profiles));
  }
  auto devices = open_devices(options, &state->metrics);
  if (!devices.ok()) return devices.status();
  state->workers = std::make_unique<Workers>(
      Workers::Options{options.workers.cpu, limits::audit_bytes(options.memory_bytes), &state->metrics,
                       [](const std::string& line) {
                         log_event(LogLevel::kError, "worker_trouble", {{"message", line}});
                       },
                       steady_now},
      *std::move(devices));
  if (auto made = make_data_dir(options.data_dir); !made.ok()) return made;
  auto store = open_local_store(options.data_dir,
                                {"",
                                 [](const std::string& line) {
                                   log_event(LogLevel::kError, "store_trouble", {{"message", line}});
                                 },
                                 [metrics = &state->metrics](double seconds, std::size_t records, bool stored) {
                                   metrics->add_commit(seconds, records, stored);
                                 }});
  if (!store.ok()) return store.status();
  state->store = *std::move(store);
  state->golden = std::make_unique<GoldenStore>(options.data_dir + "/golden", options.disk_reserve_bytes);
  state->pairs = std::make_unique<GoldenStore>(options.data_dir + "/pairs", options.disk_reserve_bytes);
  auto sharing =
      Sharing::begin(options, state->store.get(), {state->golden.get(), state->pairs.get()}, &state->metrics);
  if (!sharing.ok()) return sharing.status();
  state->sharing = *std::move(sharing);
  // Half of the quota each: a run that fails at every step does not cost another the traces that it is compared with.
  auto references = TraceStore::open(options.data_dir + "/traces", options.trace_quota_bytes / 2, TraceContent::kPaired,
                                     options.disk_reserve_bytes);
  if (!references.ok()) return references.status();
  state->references = *std::move(references);
  auto kept = TraceStore::open(options.data_dir + "/kept", options.trace_quota_bytes / 2, TraceContent::kWhole,
                               options.disk_reserve_bytes);
  if (!kept.ok()) return kept.status();
  state->kept = *std::move(kept);

  state->projects = std::make_unique<ProjectUse>(
      [access = state->access.get()](const std::string& project) { return access->quota(project); },
      [raw = state.get()] { raw->housekeeping->count_soon(); });
  state->kept->limit_projects([access = state->access.get()](const std::string& project) {
    const Quota quota = access->quota(project);
    return TraceStore::Shares{quota.kept_trace_bytes, quota.job_kept_trace_bytes};
  });
  state->housekeeping = std::make_unique<Housekeeping>(
      Housekeeping::Parts{state->store.get(), state->kept.get(), state->references.get(), state->golden.get(),
                          state->projects.get(),
                          [](const std::string& line) {
                            log_event(LogLevel::kError, "retention_trouble", {{"message", line}});
                          },
                          state->pairs.get()},
      options.keep);
  state->pipeline = std::make_unique<StepPipeline>(
      StepPipeline::Parts{state->store.get(), state->references.get(), state->kept.get(), state->golden.get(),
                          &state->runs, state->workers.get(), state->disk.get(), &state->metrics, &state->memory,
                          state->sharing->golden(), state->sharing->tell_nodes(),
                          options.store.empty() ? nullptr : state->pairs.get(), state->sharing->pairs(),
                          state->buffers},
      StepPipeline::Options{options.reference_timeout, options.audit_timeout, options.orphan_timeout,
                            options.memory_bytes / limits::kIngestShare,
                            limits::kWorkPerSecondAndThread * options.threads, options.step_work_limit});
  const std::uint64_t audit_bytes = limits::audit_bytes(options.memory_bytes);
  state->audits = std::make_unique<AuditService>(
      AuditService::Parts{state->store.get(), &state->runs, state->pipeline.get(), state->disk.get(), &state->profiles,
                          &state->memory, state->buffers, &state->metrics, state->golden.get(),
                          // A daemon without a CUDA worker keeps off the devices.
                          options.workers.cuda.empty() ? nullptr : cuda_memory_opener(), state->access.get(),
                          state->projects.get(), state->sharing->golden(), state->asking.get()},
      AuditService::Options{options.memory_bytes / limits::kStepShare,
                            static_cast<std::int64_t>(audit_bytes / sizeof(double)), options.streams_max,
                            options.streams_of_a_user_max, options.open_timeout, options.step_timeout, options.version,
                            options.connection_age});
  state->verdicts = std::make_unique<VerdictService>(
      VerdictService::Parts{state->store.get(), state->access.get(), state->kept.get(), state->references.get(),
                            &state->runs, state->pipeline.get(), server_info(options),
                            [raw = state.get()] { raw->housekeeping->count_soon(); }, state->projects.get(),
                            [audits = state->audits.get()](const std::string& project, const std::string& job) {
                              return audits->bytes_in_flight(project, job);
                            },
                            state->sharing->reader(), state->pairs.get()});
  state->archive = std::make_unique<ArchiveService>(
      ArchiveService::Parts{state->store.get(), state->kept.get(), state->golden.get(), state->workers.get(),
                            &state->profiles, state->access.get()},
      ArchiveService::Options{options.memory_bytes / limits::kStepShare,
                              static_cast<std::int64_t>(audit_bytes / sizeof(double)), options.audit_timeout,
                              limits::kWorkPerSecondAndThread * options.threads, options.step_work_limit,
                              options.data_dir + "/scratch"});

  google::protobuf::SetLogHandler(nullptr);  // Its complaints are of what clients send; they are told.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::channelz::experimental::InitChannelzService();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits::kMessageBytesMax));
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);  // A peer that vanished gives its run back.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(options.connection_idle_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, milliseconds(options.connection_age));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, milliseconds(age_grace(options)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsOfAConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(count_calls(&state->metrics.calls()));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  builder.RegisterService(state->audits.get());
  builder.RegisterService(state->verdicts->service());
  builder.RegisterService(state->archive.get());
  if (auto listening = state->listen(&builder); !listening.ok()) return listening;
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) return absl::InternalError("--listen: gRPC does not start");
  state->serve();
  if (!options.metrics_listen.empty()) {
    auto* raw = state.get();
    state->metrics.on_scrape([raw] {
      raw->metrics.set_queue_steps(raw->workers->queued());
      raw->metrics.set_worker_busy_ratio(raw->workers->take_busy_ratio());
      raw->metrics.set_worker_memory_bytes(raw->workers->memory_used() + raw->memory.used());
      raw->metrics.set_memory_limit_bytes(limits::audit_bytes(raw->options.memory_bytes) + raw->memory.limit());
      raw->metrics.set_streams(raw->audits->streams());
      const std::size_t for_ranks = raw->pipeline->waiting_for_ranks(), waiting = raw->pipeline->waiting();
      raw->metrics.set_steps_waiting(waiting - std::min(for_ranks, waiting), for_ranks);
      raw->workers->show(&raw->metrics);
      raw->metrics.set_faults(faults());
      raw->sharing->show(&raw->metrics);
      raw->metrics.set_connections(raw->connections.count(), raw->connections.refused());
      for (const auto& [check, fault] : raw->readiness()) raw->metrics.set_ready(check, fault.empty());
      std::error_code error;
      const auto space = std::filesystem::space(raw->options.data_dir, error);
      raw->metrics.set_disk_free_bytes(error ? 0 : space.available);
    });
    auto served = MetricsServer::start(options.metrics_listen, &state->metrics, [raw] {
      std::string all;
      for (const auto& [check, fault] : raw->readiness()) {
        if (!fault.empty()) absl::StrAppend(&all, all.empty() ? "" : "\n", check, ": ", fault);
      }
      return all;
    });
    if (!served.ok()) {
      return absl::Status(served.status().code(), StrCat("--metrics-listen: ", served.status().message()));
    }
    state->metrics_server = *std::move(served);
  }
  return std::unique_ptr<Daemon>(new Daemon(std::move(state)));
}

Daemon::Daemon(std::unique_ptr<State> state) : state_(std::move(state)) {}

Daemon::~Daemon() { drain(absl::ZeroDuration()); }

absl::Status Daemon::reload() { return state_->access->reload(); }

std::vector<std::pair<std::string, std::string>> Daemon::readiness() const { return state_->readiness(); }

void Daemon::tick() {
  State& state = *state_;
  if (steady_now() - state.released >= kReleaseEvery) {
    state.released = steady_now();
    release_unneeded_buffers();
    state.buffers->release_unneeded();
  }
  std::string wrong;
  for (const auto& [check, fault] : state.readiness()) {
    if (!fault.empty()) absl::StrAppend(&wrong, wrong.empty() ? "" : "; ", check, ": ", fault);
  }
  const bool ready = wrong.empty();
  if (ready == state.was_ready) return;
  state.was_ready = ready;
  if (auto* health = state.server->GetHealthCheckService(); health != nullptr) health->SetServingStatus(ready);
  log_event(ready ? LogLevel::kInfo : LogLevel::kError, ready ? "ready" : "not_ready", {{"message", wrong}});
}

bool Daemon::drain(absl::Duration timeout) {
  State& state = *state_;
  if (state.drained) return true;
  state.drained = true;
  const absl::Time deadline = steady_now() + timeout;
  if (auto* health = state.server->GetHealthCheckService(); health != nullptr) health->SetServingStatus(false);
  state.audits->begin_drain();
  state.pipeline->stop_waiting();
  bool clean = state.audits->wait_for_streams(deadline);
  clean = state.workers->drain(deadline) && clean;
  state.pipeline->give_up();  // What runs yet ends at its next node, and is sent again later.
  state.verdicts->drain();
  state.archive->drain();
  state.listeners.clear();
  const absl::Duration left = clean ? std::max(deadline - steady_now(), absl::Seconds(1)) : absl::ZeroDuration();
  state.server->Shutdown(absl::ToChronoTime(absl::Now() + left));
  state.server->Wait();
  state.audits->wait_for_streams(absl::InfiniteFuture());
  state.server.reset();
  state.verdicts.reset();  // Its threads may be about to leave the histories.
  state.metrics_server.reset();
  state.housekeeping.reset();
  state.asking.reset();
  state.disk->flush();    // It may still give work to the workers.
  state.workers.reset();  // Waits for the audits that run; what has not started is dropped, and sent again later.
  state.disk->flush();    // Nothing of it speaks to the store any more.
  // What is not shipped or published by then is after the next start.
  state.sharing->finish(std::min(left, kLastShipping));
  state.sharing.reset();
  state.store.reset();  // Commits, and runs the last callbacks: memory that comes back may wake disk work.
  state.disk.reset();
  state.pipeline.reset();
  return clean;
}

const std::string& Daemon::metrics_address() const {
  static const std::string none;
  return state_->metrics_server == nullptr ? none : state_->metrics_server->address();
}

std::vector<std::string> Daemon::profile_names() const { return state_->profiles.names(); }

std::string Daemon::workers() const { return state_->workers->describe(); }

std::vector<std::string> Daemon::addresses() const {
  std::vector<std::string> addresses;
  for (const auto& listener : state_->listeners) addresses.push_back(listener->address());
  return addresses;
}

}  // namespace plumbline
