// What the last verdicts of a run audited between them, of the models that its steps state.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "plumbline/v1/query.pb.h"
#include "server/store/sql.h"
#include "server/store/visibility.h"

namespace plumbline {

// Adds the coverage of each rank of a run whose steps state their modules; of the job's last run where `run` is empty.
// Adds nothing of runs that may not be seen.
absl::Status add_run_coverage(const SqlConnection& connection, const std::string& project, const std::string& job,
                              std::string run, const Visibility& seen,
                              google::protobuf::RepeatedPtrField<v1::RunCoverage>* coverage);

inline constexpr int kCoverageVerdictsMax = 256;
inline constexpr int kLeftOutMax = 64;

}  // namespace plumbline
