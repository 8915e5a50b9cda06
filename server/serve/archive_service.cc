#include "server/serve/archive_service.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/format.h"
#include "client/cpp/names.h"
#include "kernels/cpu/cancel.h"
#include "server/bound/pair/golden.h"
#include "server/fault/fault.h"
#include "server/ingest/limits.h"
#include "server/log/log.h"
#include "server/pipeline/audit.h"
#include "server/pipeline/estimate.h"
#include "server/serve/identify.h"
#include "server/serve/paging.h"
#include "server/serve/query_status.h"
#include "server/serve/reproducer_script.h"
#include "server/store/encode.h"
#include "server/store/page_token.h"
#include "server/work/steady.h"

namespace plumbline {
namespace {

using absl::StrCat;

constexpr std::chrono::milliseconds kCancelledPoll{100};  // How often a call asks whether its client is still there.
constexpr std::uint64_t kGoldenBytesMax = std::uint64_t{4} << 30;  // An imported file is no larger.

std::string project_of(const v1::GoldenName& name) { return name.project().empty() ? "default" : name.project(); }

absl::Status no_room(const std::string& directory) {
  return absl::ResourceExhaustedError(StrCat("cannot hold the file that is sent in ", directory));
}

}  // namespace

ArchiveService::ArchiveService(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {
  std::error_code ignored;  // Shows when a file is to be received.
  std::filesystem::remove_all(options_.scratch, ignored);
  std::filesystem::create_directories(options_.scratch, ignored);
}

absl::Status ArchiveService::enter() {
  const std::lock_guard lock(mutex_);
  if (draining_) return absl::UnavailableError("draining");
  if (calls_ >= kCallsMax) {
    return absl::ResourceExhaustedError(StrCat("expected at most ", kCallsMax, " calls of the archive at one time"));
  }
  ++calls_;
  return absl::OkStatus();
}

void ArchiveService::leave() {
  const std::lock_guard lock(mutex_);
  --calls_;
}

grpc::Status ArchiveService::in_turn(const absl::StatusOr<Caller>& caller,
                                     const std::function<absl::Status(const Caller&)>& call) {
  if (!caller.ok()) return query_status(caller.status());
  if (const absl::Status refused = enter(); !refused.ok()) return query_status(refused);
  absl::Status status;
  if (absl::Status fault = contained("the archive", [&] { status = call(*caller); }); !fault.ok())
    status = std::move(fault);
  leave();
  return query_status(status);
}

void ArchiveService::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  changed_.notify_all();
}

absl::StatusOr<std::string> ArchiveService::kept_path(const Caller& caller, const std::string& id) const {
  if (auto seen = check_seen(*parts_.store, *parts_.access, caller, id); !seen.ok()) return seen;
  StepIdentity step;
  parse_id(id, &step);
  if (step.rank < 0) {
    return absl::NotFoundError(StrCat(id,
                                      " is the verdict of all ranks, made of what their nodes told of theirs: a "
                                      "node's own, which has its lowest rank in place of -1, can be replayed"));
  }
  const auto verdict = parts_.store->get(id);
  if (!verdict.ok()) return verdict.status();
  switch (parts_.kept->state(step)) {
    case TraceStore::State::kPresent:
      return parts_.kept->path(step);
    case TraceStore::State::kEvicted:
      return absl::NotFoundError(StrCat("the trace of ", id, " was evicted (--trace-quota)"));
    case TraceStore::State::kAbsent:
      break;
  }
  return absl::NotFoundError(StrCat("no trace was kept of ", id, ", whose verdict is ", short_name(verdict->verdict()),
                                    ": TYPE_II verdicts keep theirs"));
}

absl::StatusOr<std::string> ArchiveService::golden_owner(const Caller& caller, const v1::GoldenName& name) const {
  const std::string project = project_of(name);
  auto owner = parts_.golden->owner_of(project, name.name());
  // Whose a damaged one is cannot be read: administrators see to it.
  if (!owner.ok() && !absl::IsNotFound(owner.status()) && parts_.access->sees(caller, project, ""))
    return std::string();
  if (!owner.ok() || parts_.access->sees(caller, project, *owner)) return owner;
  return absl::NotFoundError(StrCat("there is no golden run '", name.name(), "' in project ", project));
}

absl::StatusOr<ArchiveService::Sent> ArchiveService::receive(grpc::ServerContext* context, const Caller& caller,
                                                             const std::function<bool(v1::ReplayRequest*)>& read) {
  auto upload = uploads_.begin(context);
  if (!upload.ok()) return upload.status();
  v1::ReplayRequest request;
  if (!read(&request)) return absl::InvalidArgumentError("id: expected a verdict's id or a file, found none");
  Sent sent{request.id(), request.profile(), nullptr};
  if (!sent.id.empty()) return sent;
  if (auto known = parts_.access->check_known(caller); !known.ok()) return known;
  sent.file = std::make_unique<ScratchFile>(options_.scratch);
  std::uint64_t bytes = 0;
  do {
    (*upload)->progress();
    bytes += request.data().size();
    if (bytes > 2 * options_.step_bytes_max) {  // A step's and its reference's.
      return absl::ResourceExhaustedError(
          StrCat("the file is larger than the ", 2 * options_.step_bytes_max, " bytes that --memory-limit leaves it"));
    }
    if (!sent.file->append(request.data())) return no_room(options_.scratch);
    request.Clear();
  } while (read(&request));
  if (!sent.file->close_file()) return no_room(options_.scratch);
  return sent;
}

absl::StatusOr<ArchiveService::Asked> ArchiveService::read_asked(const Caller& caller, const Sent& sent) const {
  absl::StatusOr<TraceRecord> record = TraceRecord{};
  if (!sent.id.empty()) {
    const auto path = kept_path(caller, sent.id);
    if (!path.ok()) return path.status();
    record = read_trace_file(*path);
    if (absl::IsNotFound(record.status())) {  // Evicted meanwhile.
      return absl::NotFoundError(StrCat("the trace of ", sent.id, " was evicted (--trace-quota)"));
    }
  } else {
    record = read_trace_file(sent.file->path(), {options_.step_bytes_max, options_.elements_max, nullptr});
  }
  if (!record.ok()) return record.status();
  if (record->golden != nullptr) {
    if (const std::string foreign = first_foreign_leaf(*record->trace, *record->golden); !foreign.empty()) {
      return absl::FailedPreconditionError(StrCat("expected the leaves of the golden run's step: ", foreign));
    }
  }
  Asked asked{*std::move(record), nullptr};
  if (!sent.profile.empty() || asked.record.profile.empty()) {
    asked.record.profile = sent.profile.empty() ? "ieee" : sent.profile;
  }
  asked.profile = parts_.profiles->find(asked.record.profile);
  if (asked.profile == nullptr) {
    return absl::NotFoundError(StrCat("profile: expected one of ", absl::StrJoin(parts_.profiles->names(), ", "),
                                      ", perhaps with +", absl::StrJoin(ProfileRegistry::options(), ", +"),
                                      ", found \"", asked.record.profile.substr(0, 128), "\""));
  }
  return asked;
}

Verdict ArchiveService::audit_again(const Asked& asked) const {
  Verdict verdict = audit(asked.record, *asked.profile, ObservedProducts::kEveryElement, nullptr,
                          options_.work_per_second * absl::ToDoubleSeconds(options_.audit_timeout));
  verdict.profile = asked.record.profile;
  return verdict;
}

absl::StatusOr<std::string> ArchiveService::on_worker(const grpc::ServerContext& context, const Caller& caller,
                                                      const TraceRecord& record, std::function<void()> compute) {
  // Outlives a call that gives up.
  struct State {
    std::atomic<bool> left = false;  // Nobody waits any more.
    std::atomic<bool> late = false;
    bool done = false;
    Workers::Ran ran;
  };
  auto state = std::make_shared<State>();
  Workers::Task task;
  task.job = "replay";
  task.run = StrCat("replay ", reinterpret_cast<std::uintptr_t>(state.get()));  // None waits for another.
  task.owner = caller.name();
  task.bytes = estimated_audit_bytes(*record.trace);
  task.multiplications = estimated_audit_work(*record.trace);
  if (auto much = check_work_limit(task.multiplications, options_.work_limit); !much.ok()) return much;
  task.compute = [state, compute = std::move(compute), timeout = options_.audit_timeout] {
    const absl::Time end = steady_now() + timeout;
    const CancelScope scope([&] { return !state->left && steady_now() < end; });
    try {
      compute();
    } catch (const GivenUp&) {
      state->late = !state->left;
    }
  };
  task.finish = [this, state](const Workers::Ran& ran) {
    const std::lock_guard lock(mutex_);
    state->ran = ran;
    state->done = true;
    changed_.notify_all();
  };
  const auto ticket = parts_.workers->submit(std::move(task));
  if (!ticket.ok()) return ticket.status();
  std::unique_lock lock(mutex_);
  const auto ended = [&] { return state->done || draining_ || context.IsCancelled(); };
  while (!changed_.wait_for(lock, kCancelledPoll, ended)) continue;
  state->left = !state->done;
  if (!state->done && draining_) return absl::UnavailableError("draining");
  if (!state->done) return absl::CancelledError("the caller left");
  if (!state->ran.status.ok()) return state->ran.status;
  if (state->late) {
    return absl::DeadlineExceededError(
        StrCat("it took longer than ", absl::FormatDuration(options_.audit_timeout), " (--audit-timeout)"));
  }
  return state->ran.backend;
}

grpc::Status ArchiveService::ExportTrace(grpc::ServerContext* context, const v1::ExportTraceRequest* request,
                                         grpc::ServerWriter<v1::FileChunk>* writer) {
  return in_turn(identify(*context, *parts_.access), [&](const Caller& caller) -> absl::Status {
    const auto path = kept_path(caller, request->id());
    if (!path.ok()) return path.status();
    std::ifstream file(*path, std::ios::binary);
    if (!file) return absl::NotFoundError(StrCat("the trace of ", request->id(), " was evicted (--trace-quota)"));
    v1::FileChunk chunk;
    std::string* data = chunk.mutable_data();
    do {
      data->resize(limits::kChunkBytesMax);
      file.read(data->data(), static_cast<std::streamsize>(data->size()));
      data->resize(static_cast<std::size_t>(file.gcount()));
    } while (!data->empty() && writer->Write(chunk));
    return absl::OkStatus();
  });
}

grpc::Status ArchiveService::Replay(grpc::ServerContext* context, grpc::ServerReader<v1::ReplayRequest>* reader,
                                    v1::Explanation* response) {
  const auto caller = identify(*context, *parts_.access);
  if (!caller.ok()) return query_status(caller.status());
  const auto sent = receive(context, *caller, [reader](v1::ReplayRequest* request) { return reader->Read(request); });
  if (!sent.ok()) return query_status(sent.status());
  return in_turn(caller, [&](const Caller& who) -> absl::Status {
    auto asked = read_asked(who, *sent);
    if (!asked.ok()) return asked.status();
    // Shared with a task that may outlive the call.
    auto held = std::make_shared<Asked>(*std::move(asked));
    auto verdict = std::make_shared<v1::Verdict>();
    const auto backend =
        on_worker(*context, *caller, held->record, [this, held, verdict] { *verdict = to_proto(audit_again(*held)); });
    if (!backend.ok()) return backend.status();
    verdict->set_backend(*backend);
    verdict->Swap(response->mutable_verdict());
    response->set_text(explain_verdict(response->verdict()));
    return absl::OkStatus();
  });
}

grpc::Status ArchiveService::Reproduce(grpc::ServerContext* context,
                                       grpc::ServerReaderWriter<v1::ReproducerChunk, v1::ReplayRequest>* stream) {
  const auto caller = identify(*context, *parts_.access);
  if (!caller.ok()) return query_status(caller.status());
  const auto sent = receive(context, *caller, [stream](v1::ReplayRequest* request) { return stream->Read(request); });
  if (!sent.ok()) return query_status(sent.status());
  return in_turn(caller, [&](const Caller& who) -> absl::Status {
    auto asked = read_asked(who, *sent);
    if (!asked.ok()) return asked.status();
    auto held = std::make_shared<Asked>(*std::move(asked));
    auto made = std::make_shared<ReproducerScript>();
    auto why_not = std::make_shared<std::string>();
    const auto ran = on_worker(*context, *caller, held->record, [this, held, made, why_not] {
      const Verdict verdict = audit_again(*held);
      why_not->clear();
      try {
        *made = write_reproducer(reproduce(held->record, verdict, *held->profile), verdict);
      } catch (const std::runtime_error& error) {
        *why_not = error.what();
      }
    });
    if (!ran.ok()) return ran.status();
    if (!why_not->empty()) return absl::FailedPreconditionError(*why_not);
    v1::ReproducerChunk chunk;
    chunk.set_script(made->script);
    bool open = stream->Write(chunk);
    chunk.Clear();
    for (std::size_t at = 0; open && at < made->data.size(); at += limits::kChunkBytesMax) {
      chunk.set_data(made->data.substr(at, limits::kChunkBytesMax));
      open = stream->Write(chunk);
    }
    return absl::OkStatus();
  });
}

grpc::Status ArchiveService::ListGolden(grpc::ServerContext* context, const v1::ListGoldenRequest* request,
                                        v1::ListGoldenResponse* response) {
  return in_turn(identify(*context, *parts_.access), [&](const Caller& caller) -> absl::Status {
    const auto size = page_size(request->page_size());
    if (!size.ok()) return size.status();
    const std::string question = StrCat("golden ", request->project());
    std::string after;
    if (!request->page_token().empty()) {
      auto place = read_page_token(question, request->page_token());
      if (!place.ok()) return place.status();
      after = *std::move(place);
    }
    std::string last;
    for (v1::GoldenSummary& golden : parts_.golden->list(request->project())) {
      if (!parts_.access->sees(caller, golden.header().project(), golden.owner())) continue;
      std::string place = StrCat(golden.header().project(), std::string(1, '\0'), golden.header().name());
      if (place <= after) continue;
      if (response->golden_size() == *size) {
        response->set_next_page_token(make_page_token(question, last));
        break;
      }
      last = std::move(place);
      *response->add_golden() = std::move(golden);
    }
    return absl::OkStatus();
  });
}

grpc::Status ArchiveService::ExportGolden(grpc::ServerContext* context, const v1::GoldenName* request,
                                          grpc::ServerWriter<v1::FileChunk>* writer) {
  return in_turn(identify(*context, *parts_.access), [&](const Caller& caller) -> absl::Status {
    if (auto owner = golden_owner(caller, *request); !owner.ok()) return owner.status();
    return parts_.golden->export_to(project_of(*request), request->name(), [writer](const std::string& bytes) {
      v1::FileChunk chunk;
      chunk.set_data(bytes);
      return writer->Write(chunk);
    });
  });
}

grpc::Status ArchiveService::ImportGolden(grpc::ServerContext* context,
                                          grpc::ServerReader<v1::ImportGoldenRequest>* reader,
                                          v1::GoldenSummary* response) {
  const auto caller = identify(*context, *parts_.access);
  if (!caller.ok()) return query_status(caller.status());
  v1::ImportGoldenRequest request;
  ScratchFile file(options_.scratch);
  std::string project, name;
  const auto receive = [&]() -> absl::Status {
    if (auto known = parts_.access->check_known(*caller); !known.ok()) return known;
    auto upload = uploads_.begin(context);
    if (!upload.ok()) return upload.status();
    if (!reader->Read(&request)) return absl::InvalidArgumentError("data: expected a file, found none");
    project = request.project();
    name = request.name();
    std::uint64_t bytes = 0;
    do {
      (*upload)->progress();
      bytes += request.data().size();
      if (bytes > kGoldenBytesMax) {
        return absl::ResourceExhaustedError(StrCat("the file is larger than ", kGoldenBytesMax, " bytes"));
      }
      if (!file.append(request.data())) return no_room(options_.scratch);
    } while (reader->Read(&request));
    return file.close_file() ? absl::OkStatus() : no_room(options_.scratch);
  };
  if (const absl::Status received = receive(); !received.ok()) return query_status(received);
  return in_turn(caller, [&](const Caller& who) -> absl::Status {
    const auto may = [&](const std::string& into) { return parts_.access->check(who, Role::kStream, into); };
    auto imported = parts_.golden->import(file.path(), project, name, who.name(), may);
    if (!imported.ok()) return imported.status();
    *response = *std::move(imported);
    return absl::OkStatus();
  });
}

grpc::Status ArchiveService::RemoveGolden(grpc::ServerContext* context, const v1::GoldenName* request,
                                          v1::GoldenSummary* response) {
  return in_turn(identify(*context, *parts_.access), [&](const Caller& caller) -> absl::Status {
    const auto owner = golden_owner(caller, *request);
    if (!owner.ok()) return owner.status();
    if (!parts_.access->handles(caller, project_of(*request), *owner)) {
      return absl::PermissionDeniedError(StrCat("name: expected a golden run of ", caller.name(), ", found '",
                                                request->name(), "', which another recorded"));
    }
    response->mutable_header()->set_project(project_of(*request));
    response->mutable_header()->set_name(request->name());
    absl::Status removed = parts_.golden->remove(project_of(*request), request->name());
    if (removed.ok()) {
      log_event(LogLevel::kInfo, "golden_removed",
                {{"golden", StrCat(project_of(*request), "/", request->name())}, {"by", caller.name()}});
    }
    return removed;
  });
}

}  // namespace plumbline
