#include "server/store/run_coverage.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/verdict.pb.h"
#include "server/store/filter.h"

namespace plumbline {
namespace {

// The union of what verdicts audited, taken newest first: a module counts as it was audited last.
class Union {
 public:
  explicit Union(v1::RunCoverage* coverage) : coverage_(coverage) {}

  // Whether everything is covered, and older verdicts add nothing.
  bool add(const v1::Coverage& step) {
    if (coverage_->steps() == 0) {
      coverage_->set_modules(step.modules());
      coverage_->set_parameters(step.parameters());
    }
    coverage_->set_steps(coverage_->steps() + 1);
    if (step.partial()) {
      coverage_->set_partial(coverage_->partial() + 1);
      for (const v1::Coverage::Module& module : step.audited_modules()) audited_.emplace(module.path(), module);
      left_out_.insert(step.left_out().begin(), step.left_out().end());
    } else {
      whole_modules_ = std::max(whole_modules_, step.modules_audited());
      whole_parameters_ = std::max(whole_parameters_, step.parameters_audited());
      whole_operations_ = std::max(whole_operations_, step.audited());
    }
    return std::max<std::uint64_t>(audited_.size(), whole_modules_) >= coverage_->modules();
  }

  void finish() {
    std::uint64_t parameters = 0, operations = 0;
    for (const auto& [path, module] : audited_) {
      parameters += module.parameters();
      operations += module.operations();
    }
    coverage_->set_modules_audited(std::max<std::uint64_t>(audited_.size(), whole_modules_));
    coverage_->set_parameters_audited(std::max(parameters, whole_parameters_));
    coverage_->set_operations_audited(std::max(operations, whole_operations_));
    if (whole_modules_ > 0) return;  // Its steps name no modules.
    for (const std::string& path : left_out_) {
      if (audited_.count(path) == 0 && coverage_->left_out_size() < kLeftOutMax) coverage_->add_left_out(path);
    }
  }

 private:
  v1::RunCoverage* coverage_;
  std::map<std::string, v1::Coverage::Module> audited_;
  std::set<std::string> left_out_;
  std::uint64_t whole_modules_ = 0, whole_parameters_ = 0, whole_operations_ = 0;
};

}  // namespace

absl::Status add_run_coverage(const SqlConnection& connection, const std::string& project, const std::string& job,
                              std::string run, const Visibility& seen,
                              google::protobuf::RepeatedPtrField<v1::RunCoverage>* coverage) {
  Where where;
  where.add("project=?", project);
  where.add("job=?", job);
  where.see(seen, "runs");
  if (run.empty()) {
    auto last = connection.prepare(
        absl::StrCat("SELECT run FROM runs WHERE ", where.sql, " ORDER BY last_seen_us DESC LIMIT 1"));
    if (!last.ok()) return last.status();
    where.bind(*last);
    auto row = last->step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    run = last->text(0);
    last->reset();
  }
  where.add("run=?", run);
  auto ranks = connection.prepare(absl::StrCat("SELECT rank FROM runs WHERE ", where.sql, " ORDER BY rank"));
  if (!ranks.ok()) return ranks.status();
  where.bind(*ranks);
  std::vector<std::int32_t> numbers;
  for (;;) {
    auto row = ranks->step();
    if (!row.ok()) return row.status();
    if (!*row) break;
    numbers.push_back(static_cast<std::int32_t>(ranks->integer(0)));
  }
  for (const std::int32_t rank : numbers) {
    v1::RunCoverage found;
    found.set_run(run);
    found.set_rank(rank);
    Union all(&found);
    auto verdicts = connection.prepare(
        "SELECT summary, detail FROM verdicts WHERE project=? AND job=? AND run=? AND rank=? "
        "ORDER BY step DESC LIMIT ?");
    if (!verdicts.ok()) return verdicts.status();
    verdicts->bind(project).bind(job).bind(run).bind(found.rank()).bind(kCoverageVerdictsMax);
    for (;;) {
      auto next = verdicts->step();
      if (!next.ok()) return next.status();
      if (!*next) break;
      v1::Verdict verdict;
      bool parsed = verdict.ParseFromString(verdicts->text(0));
      if (parsed && verdict.coverage().partial()) parsed = verdict.MergeFromString(verdicts->text(1));
      if (!parsed) return absl::DataLossError("a stored verdict of run " + run + " cannot be parsed");
      if (verdict.coverage().modules() == 0 || all.add(verdict.coverage())) break;
    }
    if (found.steps() == 0) continue;
    all.finish();
    *coverage->Add() = std::move(found);
  }
  return absl::OkStatus();
}

}  // namespace plumbline
