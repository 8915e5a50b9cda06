// What projects and their jobs may take and what they take, as GetServerInfo tells it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "plumbline/v1/query.pb.h"
#include "server/access/access.h"
#include "server/access/project_use.h"
#include "server/ingest/trace_store.h"
#include "server/store/store.h"

namespace plumbline {

// What each limit of a quota is held against. All must outlive their use, and are thread-safe.
struct QuotaSources {
  const Access* access = nullptr;
  const VerdictStore* store = nullptr;
  const ProjectUse* use = nullptr;
  const TraceStore* kept = nullptr;  // Null: nothing is.
  // Of one of its jobs; an empty one: of the project.
  std::function<std::uint64_t(const std::string& project, const std::string& job)> bytes_in_flight;
};

// Adds the projects of which `seen` sees all and that have a quota, by name. Errors are the store's.
absl::Status add_project_quotas(const QuotaSources& sources, const Visibility& seen, const Stop& stop,
                                v1::ServerInfo* info);

}  // namespace plumbline
