#include "tests/soundness/legal.h"

#include "tests/soundness/processor.h"

namespace plumbline::soundness {
namespace {

// Sets the processor up for each run: flushing as the profile says (a legal kernel may also keep subnormals).
class InMode final : public Execution {
 public:
  InMode(std::unique_ptr<Execution> inner, bool may_flush, bool may_truncate)
      : inner_(std::move(inner)), may_flush_(may_flush), may_truncate_(may_truncate) {}

  void run(Random& random, double* out) override {
    const ProcessorMode mode(may_flush_ && coin(random), may_truncate_ && coin(random));
    inner_->run(random, out);
  }

 private:
  std::unique_ptr<Execution> inner_;
  bool may_flush_, may_truncate_;
};

}  // namespace

std::unique_ptr<Execution> legal_executions(const Problem& problem, std::span<const Exact> truth,
                                            const Arithmetic& arithmetic) {
  std::unique_ptr<Execution> inner = legal_movement(problem, arithmetic);
  if (!inner) inner = legal_reduction(problem, arithmetic);
  if (!inner) inner = legal_contraction(problem, arithmetic);
  if (!inner) inner = legal_softmax(problem, arithmetic);
  if (!inner) inner = legal_elementwise(problem, truth, arithmetic);
  if (!inner) return nullptr;
  const Profile& profile = *arithmetic.profile;
  return std::make_unique<InMode>(std::move(inner), profile.flush_subnormals, profile.rounding != Rounding::kNearest);
}

}  // namespace plumbline::soundness
