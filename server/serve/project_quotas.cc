#include "server/serve/project_quotas.h"

#include <initializer_list>
#include <map>
#include <set>

namespace plumbline {
namespace {

struct Told {
  const char* name;
  std::uint64_t limit, used;
};

void tell(std::initializer_list<Told> all,
          google::protobuf::RepeatedPtrField<v1::ServerInfo::ProjectQuota::Quota>* quotas) {
  for (const auto& [name, limit, used] : all) {
    if (limit == Quota::kNone) continue;
    auto* one = quotas->Add();
    one->set_name(name);
    one->set_limit(limit);
    one->set_used(used);
  }
}

std::uint64_t of(const std::map<std::string, std::uint64_t>& used, const std::string& name) {
  const auto found = used.find(name);
  return found == used.end() ? 0 : found->second;
}

// Those of the project's jobs that are at work, where jobs have limits.
absl::Status add_jobs(const QuotaSources& sources, const std::string& project, const Quota& quota, const Stop& stop,
                      v1::ServerInfo::ProjectQuota* told) {
  if (!quota.of_jobs()) return absl::OkStatus();
  const auto kept = sources.kept == nullptr || quota.job_kept_trace_bytes == Quota::kNone
                        ? std::map<std::string, std::uint64_t>()
                        : sources.kept->used_by_job(project);
  for (const auto& [job, use] : sources.use->jobs(project)) {
    std::uint64_t verdicts = 0;
    if (quota.job_verdicts != Quota::kNone) {
      const auto stored = sources.store->verdicts_of_job(project, job, stop);
      if (!stored.ok()) return stored.status();
      verdicts = *stored;
    }
    auto* one = told->add_jobs();
    one->set_job(job);
    tell({{"job_streams", quota.job_streams, use.streams},
          {"job_bytes_in_flight", quota.job_bytes_in_flight, sources.bytes_in_flight(project, job)},
          {"job_steps_queued", quota.job_steps_queued, use.steps},
          {"job_verdicts", quota.job_verdicts, verdicts},
          {"job_kept_trace_bytes", quota.job_kept_trace_bytes, of(kept, job)}},
         one->mutable_quotas());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status add_project_quotas(const QuotaSources& sources, const Visibility& seen, const Stop& stop,
                                v1::ServerInfo* info) {
  const auto stored = sources.store->verdicts_of_projects(stop);
  if (!stored.ok()) return stored.status();
  const auto kept = sources.kept == nullptr ? std::map<std::string, std::uint64_t>() : sources.kept->used_by_project();
  // A run is stored when it is opened, so that who streams is among the projects of the store.
  std::set<std::string> projects = sources.access->projects();
  for (const auto& [project, verdicts] : *stored) projects.insert(project);
  for (const std::string& project : projects) {
    if (!seen.whole(project)) continue;
    const Quota quota = sources.access->quota(project);
    const ProjectUse::Use use = sources.use->use(project);
    v1::ServerInfo::ProjectQuota told;
    tell({{"streams", quota.streams, use.streams},
          {"bytes_in_flight", quota.bytes_in_flight, sources.bytes_in_flight(project, "")},
          {"steps_queued", quota.steps_queued, use.steps},
          {"verdicts", quota.verdicts, of(*stored, project)},
          {"kept_trace_bytes", quota.kept_trace_bytes, of(kept, project)}},
         told.mutable_quotas());
    if (auto added = add_jobs(sources, project, quota, stop, &told); !added.ok()) return added;
    if (told.quotas().empty() && told.jobs().empty()) continue;
    told.set_project(project);
    *info->add_projects() = std::move(told);
  }
  return absl::OkStatus();
}

}  // namespace plumbline
