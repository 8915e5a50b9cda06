// How fast the daemon takes a step's bytes, beside a bare gRPC stream that carries the same messages over the same kind
// of socket and does nothing with them.
//
//   ingest_bench --server unix:PATH   streams steps to the daemon
//   ingest_bench --shared unix:PATH   the same, with the payload in shared memory
//   ingest_bench --bare unix:PATH     starts a bare receiver in a process of its own, streams to that
//   ingest_bench --memcpy 1           copies the payload in memory, from and to pages that were touched before
//   --mib N  payload of a step (default 64)   --steps N  (default 8)
//
// Prints bytes per second of the payload, one number a step: from the first message until the receiver has said that it
// received the last one. The runs are separate, so that a caller can interleave them.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "plumbline/v1/audit.grpc.pb.h"

namespace plumbline::v1 {
namespace {

constexpr std::size_t kChunkBytes = 1 << 20;
constexpr std::uint32_t kRegion = 1;
constexpr std::uint64_t kUnlimited = ~std::uint64_t{0} >> 1;

// Receives and counts; the rival. Says how far it is after each message that ends a step.
class Receiver final : public AuditService::CallbackService {
  class Reactor final : public grpc::ServerBidiReactor<AuditRequest, AuditResponse> {
   public:
    Reactor() {
      response_.mutable_ack()->set_credit(kUnlimited);
      StartWrite(&response_);
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      received_ += request_.ByteSizeLong();
      if (request_.has_step_end()) {
        response_.mutable_ack()->set_received(received_);
        StartWrite(&response_);
      }
      StartRead(&request_);
    }
    void OnDone() override { delete this; }

   private:
    AuditRequest request_;
    AuditResponse response_;
    std::uint64_t received_ = 0;
  };
  grpc::ServerUnaryReactor* OpenJob(grpc::CallbackServerContext* context, const OpenJobRequest*, Job* job) override {
    job->set_handle("bare");
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerBidiReactor<AuditRequest, AuditResponse>* Audit(grpc::CallbackServerContext*) override {
    return new Reactor;
  }
};

int receive(const std::string& address) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  Receiver receiver;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&receiver);
  builder.SetMaxReceiveMessageSize(4 << 20);
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  server->Wait();
  return 0;
}

// What the receiver has said so far.
class Progress {
 public:
  void update(const AuditResponse& response) {
    std::lock_guard lock(mutex_);
    if (response.has_ack()) {
      credit_ = std::max(credit_, response.ack().credit());
      received_ = std::max(received_, response.ack().received());
    }
    if (response.has_verdict() || response.has_error()) ++answers_;
    if (response.has_region()) {
      region_answered_ = true;
      error_ = response.region().status().message();
    }
    if (response.has_error()) error_ = response.error().status().message();
    changed_.notify_all();
  }
  void end() {
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  // False if the stream ended first.
  bool wait_credit(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return credit_ >= bytes || ended_; });
    return credit_ >= bytes;
  }
  bool wait_received(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return received_ >= bytes || ended_; });
    return received_ >= bytes;
  }
  bool wait_answers(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_ >= count || ended_; });
    return answers_ >= count;
  }
  bool wait_region() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return region_answered_ || ended_; });
    return region_answered_ && error_.empty();
  }
  std::string error() {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t credit_ = 0, received_ = 0;
  int answers_ = 0;
  bool ended_ = false, region_answered_ = false;
  std::string error_;
};

// Maps the file and touches all of it, in huge pages where the system has some: as the client's memory is.
void map_huge(int fd, std::uint64_t bytes) {
  constexpr std::uintptr_t kHugePage = 2 << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which these headers may not know.
  void* const room = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) std::abort();
  const std::uintptr_t even = (reinterpret_cast<std::uintptr_t>(room) + kHugePage - 1) / kHugePage * kHugePage;
  void* const memory =
      mmap(reinterpret_cast<void*>(even), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (memory == MAP_FAILED) std::abort();
  std::memset(memory, 0, bytes);
  madvise(memory, bytes, kCollapse);
}

// Registers shared memory of `bytes`.
AuditRequest share(std::uint64_t bytes) {
  const int fd = memfd_create("ingest_bench", MFD_CLOEXEC);
  struct stat file {};
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fstat(fd, &file) != 0) std::abort();
  map_huge(fd, bytes);
  AuditRequest request;
  request.mutable_region()->set_region(kRegion);
  request.mutable_region()->set_process(getpid());
  request.mutable_region()->set_fd(fd);
  request.mutable_region()->set_inode(file.st_ino);
  request.mutable_region()->set_size(bytes);
  return request;
}

// The messages of a step: one leaf of `mib` MiB in chunks, one operation on it, one tap.
std::vector<AuditRequest> messages(int mib, std::uint64_t region_chunk_bytes) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(mib) << 20;
  std::vector<AuditRequest> all(1);
  all[0].mutable_step_begin();
  AuditRequest leaf;
  leaf.mutable_leaf()->set_value(1);
  leaf.mutable_leaf()->set_dtype(DTYPE_FLOAT32);
  leaf.mutable_leaf()->set_count(static_cast<std::int64_t>(bytes / 4));
  leaf.mutable_leaf()->set_role(Leaf::DATA);
  leaf.mutable_leaf()->set_payload(1);
  all.push_back(leaf);
  const std::string chunk(kChunkBytes, '\0');
  const std::uint64_t chunk_bytes = region_chunk_bytes > 0 ? region_chunk_bytes : kChunkBytes;
  for (std::uint64_t offset = 0; offset < bytes; offset += chunk_bytes) {
    AuditRequest data;
    data.mutable_data()->set_payload(1);
    data.mutable_data()->set_offset(offset);
    data.mutable_data()->set_total(bytes);
    if (region_chunk_bytes > 0) {
      data.mutable_data()->set_region(kRegion);
      data.mutable_data()->set_region_offset(offset);
      data.mutable_data()->set_length(std::min(chunk_bytes, bytes - offset));
    } else {
      data.mutable_data()->set_data(chunk);
    }
    all.push_back(data);
  }
  AuditRequest tap;
  tap.mutable_tap()->set_name("first");
  tap.mutable_tap()->set_kind(Tap::VALUE);
  auto* term = tap.mutable_tap()->add_terms();
  term->set_weight(1);
  term->mutable_tensor()->set_value(1);
  term->mutable_tensor()->set_dtype(DTYPE_FLOAT32);
  all.push_back(tap);
  AuditRequest end;
  end.mutable_step_end()->set_frames(all.size() + 1);
  all.push_back(end);
  return all;
}

int stream(const std::string& address, int mib, int steps, bool bare, bool shared) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) {
    std::cerr << "no connection to " << address << "\n";
    return 1;
  }
  auto stub = AuditService::NewStub(channel);
  grpc::ClientContext open_context;
  OpenJobRequest request;
  request.mutable_identity()->set_project("default");
  request.mutable_identity()->set_job("ingest");
  request.mutable_identity()->set_run("bench-" + std::to_string(::getpid()));
  Job job;
  const auto opened = stub->OpenJob(&open_context, request, &job);
  if (!opened.ok()) {
    std::cerr << "OpenJob: " << opened.error_message() << "\n";
    return 1;
  }
  grpc::ClientContext context;
  auto call = stub->Audit(&context);
  Progress progress;
  std::thread reader([&] {
    AuditResponse response;
    while (call->Read(&response)) progress.update(response);
    progress.end();
  });
  AuditRequest open;
  open.mutable_open()->set_handle(job.handle());
  std::uint64_t sent = open.ByteSizeLong();
  bool ok = call->Write(open);
  if (shared) {
    const AuditRequest region = share(static_cast<std::uint64_t>(mib) << 20);
    sent += region.ByteSizeLong();
    ok = ok && progress.wait_credit(sent) && call->Write(region) && progress.wait_region();
  }
  auto all = messages(mib, shared ? job.plan().region_chunk_bytes_max() : 0);
  for (int step = 0; ok && step < steps; ++step) {
    all[0].mutable_step_begin()->set_step(step);
    const auto start = std::chrono::steady_clock::now();
    for (const auto& message : all) {
      const std::uint64_t after = sent + message.ByteSizeLong();
      ok = ok && progress.wait_credit(after) && call->Write(message);
      sent = after;
    }
    ok = ok && progress.wait_received(sent);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!ok) break;
    std::cout << static_cast<double>(mib) * (1 << 20) / seconds.count() << "\n";
    // Its verdict is not part of taking the bytes: the next step starts on an idle daemon.
    if (!bare) ok = progress.wait_answers(step + 1);
  }
  call->WritesDone();
  context.TryCancel();
  reader.join();
  const auto status = call->Finish();
  if (!ok) std::cerr << "the stream ended: " << status.error_message() << " " << progress.error() << "\n";
  if (!progress.error().empty()) std::cerr << "a step was refused: " << progress.error() << "\n";
  return ok && progress.error().empty() ? 0 : 1;
}

int copy(int mib, int steps) {
  const std::vector<char> from(static_cast<std::size_t>(mib) << 20, 1);
  std::vector<char> to(from.size());
  for (int step = 0; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (to[to.size() / 2] != 1) return 1;  // So that it is not left out.
    std::cout << static_cast<double>(from.size()) / seconds.count() << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace plumbline::v1

int main(int argc, char** argv) {
  std::string server, shared, bare, memcpy;
  int mib = 64, steps = 8;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--server") server = argv[i + 1];
    if (name == "--shared") shared = argv[i + 1];
    if (name == "--memcpy") memcpy = argv[i + 1];
    if (name == "--bare") bare = argv[i + 1];
    if (name == "--mib") mib = std::atoi(argv[i + 1]);
    if (name == "--steps") steps = std::atoi(argv[i + 1]);
  }
  const int modes = !server.empty() + !shared.empty() + !bare.empty() + !memcpy.empty();
  if (modes != 1 || mib < 1 || steps < 1) {
    std::cerr << "usage: ingest_bench (--server|--shared|--bare) unix:PATH | --memcpy 1 [--mib N] [--steps N]\n";
    return 1;
  }
  if (!memcpy.empty()) return plumbline::v1::copy(mib, steps);
  if (!server.empty()) return plumbline::v1::stream(server, mib, steps, /*bare=*/false, /*shared=*/false);
  if (!shared.empty()) return plumbline::v1::stream(shared, mib, steps, /*bare=*/false, /*shared=*/true);
  const pid_t child = fork();  // Before any use of gRPC, which does not survive a fork.
  if (child == 0) return plumbline::v1::receive(bare);
  const int status = plumbline::v1::stream(bare, mib, steps, /*bare=*/true, /*shared=*/false);
  kill(child, SIGTERM);
  return status;
}
