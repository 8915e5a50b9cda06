#include "server/serve/project_quotas.h"

#include <map>
#include <set>

namespace plumbline {

absl::Status add_project_quotas(const QuotaSources& sources, const Visibility& seen, const Stop& stop,
                                v1::ServerInfo* info) {
  const auto stored = sources.store->verdicts_of_projects(stop);
  if (!stored.ok()) return stored.status();
  const auto kept = sources.kept == nullptr ? std::map<std::string, std::uint64_t>() : sources.kept->used_by_project();
  const auto of = [](const std::map<std::string, std::uint64_t>& used, const std::string& project) {
    const auto found = used.find(project);
    return found == used.end() ? 0 : found->second;
  };
  // A run is stored when it is opened, so that who streams is among the projects of the store.
  std::set<std::string> projects = sources.access->projects();
  for (const auto& [project, verdicts] : *stored) projects.insert(project);
  for (const std::string& project : projects) {
    if (!seen.whole(project)) continue;
    const Quota quota = sources.access->quota(project);
    const ProjectUse::Use use = sources.use->use(project);
    const struct {
      const char* name;
      std::uint64_t limit, used;
    } all[] = {{"streams", quota.streams, use.streams},
               {"bytes_in_flight", quota.bytes_in_flight, sources.bytes_in_flight(project)},
               {"steps_queued", quota.steps_queued, use.steps},
               {"verdicts", quota.verdicts, of(*stored, project)},
               {"kept_trace_bytes", quota.kept_trace_bytes, of(kept, project)}};
    v1::ServerInfo::ProjectQuota told;
    for (const auto& [name, limit, used] : all) {
      if (limit == Quota::kNone) continue;
      auto* one = told.add_quotas();
      one->set_name(name);
      one->set_limit(limit);
      one->set_used(used);
    }
    if (told.quotas().empty()) continue;
    told.set_project(project);
    *info->add_projects() = std::move(told);
  }
  return absl::OkStatus();
}

}  // namespace plumbline
