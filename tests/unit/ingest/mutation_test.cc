// Frames with random damage: the assembler answers every one of them, and what it lets through is a valid trace.
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/ingest/frames_of_a_step.h"

namespace plumbline {
namespace {

void expect_valid(const Trace& trace) {
  const auto within = [&trace](const TensorRef& tensor) {
    std::int64_t last = tensor.view.offset;
    ASSERT_EQ(tensor.view.sizes.size(), tensor.view.strides.size());
    for (std::size_t d = 0; d < tensor.view.sizes.size(); ++d) {
      ASSERT_GE(tensor.view.sizes[d], 0);
      ASSERT_GE(tensor.view.strides[d], 0);
      if (tensor.view.sizes[d] == 0) return;
      last += (tensor.view.sizes[d] - 1) * tensor.view.strides[d];
    }
    for (const auto& leaf : trace.leaves) {
      if (leaf.value == tensor.value) {
        ASSERT_LT(last, leaf.count);
      }
    }
  };
  for (const auto& leaf : trace.leaves) {
    if (leaf.payload == 0) continue;
    ASSERT_EQ(trace.payloads.at(leaf.payload)->size(),
              static_cast<std::uint64_t>(leaf.count * traits(leaf.format).bytes));
  }
  for (const auto& op : trace.ops) {
    for (const auto& argument : op.arguments) {
      if (const auto* tensor = std::get_if<TensorRef>(&argument.value)) within(*tensor);
    }
    for (const auto& result : op.results) {
      if (result.observed != 0) {
        ASSERT_EQ(trace.payloads.count(result.observed), 1u);
      }
    }
  }
  for (const auto& tap : trace.taps) {
    ASSERT_FALSE(tap.terms.empty());
    for (const auto& term : tap.terms) within(term.tensor);
  }
}

TEST(Mutation, NothingThatIsDamagedGetsThroughWrong) {
  const google::protobuf::LogSilencer silence;
  std::mt19937 random(20261121);
  int done = 0, refused = 0, unparsed = 0;
  for (int round = 0; round < 20000; ++round) {
    auto frames = frames_of_a_step(round);
    const int damages = 1 + static_cast<int>(random() % 3);
    bool parsed = true;
    for (int i = 0; i < damages; ++i) {
      auto& frame = frames[random() % frames.size()];
      std::string bytes = frame.SerializeAsString();
      switch (random() % 4) {
        case 0:
          bytes[random() % bytes.size()] = static_cast<char>(random());
          break;
        case 1:
          bytes.insert(random() % bytes.size(), 1, static_cast<char>(random()));
          break;
        case 2:
          bytes.erase(random() % bytes.size(), 1);
          break;
        default:
          std::swap(frame, frames[random() % frames.size()]);
          continue;
      }
      v1::AuditRequest damaged;
      if (!damaged.ParseFromString(bytes)) {
        parsed = false;
        break;
      }
      frame = std::move(damaged);
    }
    if (!parsed) {
      ++unparsed;
      continue;
    }
    TraceAssembler assembler(options_of_a_run());
    const auto result = offer(assembler, frames);
    if (result.progress == TraceAssembler::Progress::kStepDone) {
      ++done;
      expect_valid(*assembler.take_step().trace);
      if (HasFatalFailure()) return;
    } else if (result.violation) {
      ++refused;
      EXPECT_FALSE(result.violation.description.empty());
    }
  }
  EXPECT_GT(done, 500);
  EXPECT_GT(refused, 2000);
  EXPECT_GT(unparsed, 500);
}

}  // namespace
}  // namespace plumbline
