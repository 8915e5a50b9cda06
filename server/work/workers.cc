#include "server/work/workers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/fault/fault.h"

namespace plumbline {

using absl::StrCat;

namespace {

Scheduler::Options places(const Workers::Options& options, const std::vector<std::unique_ptr<DeviceWorker>>& devices) {
  Scheduler::Options made;
  made.now = options.now;
  made.places.clear();
  for (const auto& device : devices) {
    made.places.push_back({device->name(), 1, static_cast<std::uint64_t>(device->limit_bytes()), /*device=*/true});
  }
  if (options.host_workers > 0) made.places.push_back({"cpu", options.host_workers, options.host_bytes});
  return made;
}

}  // namespace

struct Workers::State {
  Task task;
  Ran ran;
};

Workers::Workers(Options options, std::vector<std::unique_ptr<DeviceWorker>> devices)
    : options_(std::move(options)), devices_(std::move(devices)), scheduler_(places(options_, devices_)) {}

absl::StatusOr<Scheduler::Ticket> Workers::submit(Task task) {
  Scheduler::Task scheduled{task.job, task.run, task.bytes, task.ready, nullptr, task.multiplications, task.owner};
  auto state = std::make_shared<State>();
  state->task = std::move(task);
  scheduled.work = [this, state](const Scheduler::Turn& turn) { return run(*state, turn); };
  return scheduler_.submit(std::move(scheduled));
}

Scheduler::Ran Workers::run(State& state, const Scheduler::Turn& turn) {
  using Why = Scheduler::Turn::Why;
  Ran& ran = state.ran;
  if (turn.why == Why::kNowhere) {
    ran.status = absl::FailedPreconditionError(
        StrCat("no worker is left that can run it", ran.notes.empty() ? "" : "; ", absl::StrJoin(ran.notes, "; ")));
    finish(state);
    return Scheduler::Ran::kDone;
  }
  if (options_.metrics != nullptr && (turn.why == Why::kTooLarge || turn.why == Why::kFull)) {
    options_.metrics->add_spill(turn.why == Why::kFull ? Spill::kFull : Spill::kTooLarge);
  }
  ran.backend = scheduler_.places()[turn.place].name;
  if (turn.place >= devices_.size()) {
    ran.status = contained("an audit", state.task.compute);
  } else {
    absl::Status failed;
    ran.status = contained("an audit", [&] { failed = devices_[turn.place]->run(state.task.compute); });
    if (!failed.ok()) {
      device_failed(turn.place, failed);
      ran.notes.emplace_back(failed.message());
      return Scheduler::Ran::kFailed;
    }
  }
  finish(state);
  return Scheduler::Ran::kDone;
}

void Workers::finish(State& state) {
  contained("an audit's answer", [&] { state.task.finish(state.ran); }).IgnoreError();
}

void Workers::device_failed(std::size_t place, const absl::Status& failed) {
  const bool error = !absl::IsResourceExhausted(failed);
  if (options_.metrics != nullptr) options_.metrics->add_spill(error ? Spill::kDeviceError : Spill::kOutOfMemory);
  if (!error) return;
  std::string what;
  if (devices_[place]->lost()) {
    scheduler_.close(place);
    what = any_left() ? "the others go on" : "no worker is left";
  } else {
    if (options_.metrics != nullptr) options_.metrics->add_worker_restart(devices_[place]->name());
    what = "the device was opened again";
  }
  if (options_.report) options_.report(StrCat(failed.message(), "; ", what));
}

bool Workers::any_left() const {
  for (std::size_t place = 0; place < scheduler_.places().size(); ++place) {
    if (scheduler_.open(place)) return true;
  }
  return false;
}

std::uint64_t Workers::memory_used() const {
  std::uint64_t bytes = 0;
  for (std::size_t place = 0; place < scheduler_.places().size(); ++place) bytes += scheduler_.memory_used(place);
  return bytes;
}

void Workers::show(Metrics* metrics) const {
  for (std::size_t place = 0; place < scheduler_.places().size(); ++place) {
    const std::string& name = scheduler_.places()[place].name;
    metrics->set_worker_up(name, scheduler_.open(place));
    if (place < devices_.size()) {
      const DevicePool::Use use = devices_[place]->memory();
      metrics->set_worker_audit_bytes(name, static_cast<std::uint64_t>(use.lent + use.kept));
    } else {
      metrics->set_worker_audit_bytes(name, scheduler_.memory_used(place));
    }
  }
}

std::string Workers::describe() const {
  std::vector<std::string> all;
  for (std::size_t place = 0; place < scheduler_.places().size(); ++place) {
    const Scheduler::Place& each = scheduler_.places()[place];
    all.push_back(each.device
                      ? StrCat(each.name, " (", devices_[place]->product(), ", ", each.memory_bytes >> 20, " MiB)")
                      : StrCat(each.name, " x ", each.workers));
  }
  return absl::StrJoin(all, ", ");
}

}  // namespace plumbline
