// Formulas, as plumbline.define sends them: operations of any names, arguments and results. An input is some Op
// messages, each after its length. What they read and nobody made becomes a leaf, and what was observed of them some
// numbers, so that lowering and bounds have it to do with whatever an operation says.
#include <algorithm>
#include <map>
#include <random>

#include "kernels/ball/format.h"
#include "tests/fuzz/pieces.h"
#include "tests/fuzz/steps.h"
#include "tests/fuzz/target.h"

namespace plumbline::fuzz {
namespace {

constexpr std::size_t kOpsMax = 12;

class Step {
 public:
  explicit Step(std::vector<v1::Op> ops) {
    frames_.emplace_back().mutable_step_begin()->set_outputs(true);
    for (v1::Op& op : ops) {
      for (v1::Argument& argument : *op.mutable_arguments()) read(&argument);
      op.set_defined("mylib::kernel");
      std::uint64_t decision = 0;
      if (op.decision() != 0 && op.results_size() > 0) decision = payload(op.results(0).tensor(), v1::DTYPE_BOOL);
      op.set_decision(decision);
      for (v1::Result& result : *op.mutable_results()) write(&result);
      frames_.emplace_back().mutable_op()->Swap(&op);
    }
    for (const v1::Tap& tap : taps_) *frames_.emplace_back().mutable_tap() = tap;
    frames_.insert(frames_.end(), data_.begin(), data_.end());
    frames_.emplace_back().mutable_step_end()->set_frames(frames_.size());
  }
  const std::vector<v1::AuditRequest>& frames() const { return frames_; }

 private:
  struct Value {
    std::uint64_t id = 0;
    v1::DType dtype = v1::DTYPE_UNSPECIFIED;
    std::int64_t count = 0;
  };

  // Elements of the storage that a window needs; 0: more than an input may have.
  static std::int64_t extent(const v1::Tensor& tensor) {
    double last = static_cast<double>(tensor.offset());
    for (int d = 0; d < std::min(tensor.sizes_size(), tensor.strides_size()); ++d) {
      last += (static_cast<double>(tensor.sizes(d)) - 1) * static_cast<double>(tensor.strides(d));
    }
    return last >= 0 && last < static_cast<double>(kElementsMax) ? static_cast<std::int64_t>(last) + 1 : 0;
  }

  static std::int64_t elements(const v1::Tensor& tensor) {
    double all = 1;
    for (const std::int64_t size : tensor.sizes()) all *= static_cast<double>(size);
    return all >= 0 && all <= static_cast<double>(kElementsMax) ? static_cast<std::int64_t>(all) : -1;
  }

  void read(v1::Argument* argument) {
    if (argument->has_tensor()) read(argument->mutable_tensor());
    if (argument->has_scalar()) read(argument->mutable_scalar());
    if (argument->has_tensors()) {
      for (v1::Tensor& tensor : *argument->mutable_tensors()->mutable_tensors()) read(&tensor);
    }
  }

  void read(v1::Tensor* tensor) {
    if (tensor->value() == 0) return;
    Value& value = values_[tensor->value()];
    if (value.id == 0) {
      value = {++ids_, tensor->dtype(), std::max(extent(*tensor), std::int64_t{16})};
      v1::Leaf leaf;
      leaf.set_value(value.id);
      leaf.set_dtype(value.dtype);
      leaf.set_count(value.count);
      leaf.set_role(v1::Leaf::DATA);
      leaf.set_payload(payload(value.count, value.dtype));
      *frames_.emplace_back().mutable_leaf() = leaf;
    }
    tensor->set_value(value.id);
    tensor->set_dtype(value.dtype);
  }

  void write(v1::Result* result) {
    v1::Tensor* const tensor = result->mutable_tensor();
    if (tensor->value() == 0) return result->Clear();
    Value value{++ids_, tensor->dtype(), std::max(result->count(), extent(*tensor))};
    const auto base = values_.find(result->base());
    if (base != values_.end()) {
      value.dtype = base->second.dtype;
      value.count = base->second.count;
    }
    result->set_base(base == values_.end() ? 0 : base->second.id);
    values_[tensor->value()] = value;
    tensor->set_value(value.id);
    tensor->set_dtype(value.dtype);
    result->set_count(value.count);
    if (result->observed() != 0) result->set_observed(payload(*tensor, value.dtype));
    v1::Tap tap;
    tap.set_name("value " + std::to_string(value.id));
    tap.set_kind(v1::Tap::VALUE);
    tap.add_terms()->mutable_tensor()->CopyFrom(*tensor);
    tap.mutable_terms(0)->set_weight(1);
    tap.mutable_terms(0)->set_observed(payload(*tensor, value.dtype));
    taps_.push_back(tap);
  }

  std::uint64_t payload(const v1::Tensor& tensor, v1::DType dtype) { return payload(elements(tensor), dtype); }

  // Some numbers of a format, as another payload.
  std::uint64_t payload(std::int64_t count, v1::DType dtype) {
    if (count < 0 || !v1::DType_IsValid(dtype) || dtype == v1::DTYPE_UNSPECIFIED) return 0;
    const auto format = static_cast<Format>(dtype);
    std::vector<double> numbers(static_cast<std::size_t>(count));
    for (double& number : numbers) number = (static_cast<double>(random_() % 65) - 32) / (random_() % 2 == 0 ? 1 : 8);
    if (format == Format::kBool) {
      for (double& number : numbers) number = number > 0;
    }
    std::string bytes(numbers.size() * static_cast<std::size_t>(traits(format).bytes), '\0');
    encode(format, numbers.data(), count, bytes.data());
    v1::TensorData* const data = data_.emplace_back().mutable_data();
    data->set_payload(++payloads_);
    data->set_total(bytes.size());
    data->set_data(bytes);
    return payloads_;
  }

  std::vector<v1::AuditRequest> frames_, data_;
  std::vector<v1::Tap> taps_;
  std::map<std::uint64_t, Value> values_;  // The keys are the ids of the input.
  std::uint64_t ids_ = 0, payloads_ = 0;
  std::minstd_rand random_;
};

}  // namespace

PLUMBLINE_FUZZ_TARGET(formulas) {
  if (input.size() > kInputMax) return;
  auto ops = messages<v1::Op>(input);
  if (ops.size() > kOpsMax) ops.resize(kOpsMax);
  for (const auto& trace : assemble(Step(std::move(ops)).frames())) {
    TraceRecord record;
    record.trace = trace;
    judge(record);
  }
}

}  // namespace plumbline::fuzz
