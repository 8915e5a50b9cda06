#include "server/ingest/assembler.h"

#include <gtest/gtest.h>

#include <functional>

#include "server/ingest/limits.h"
#include "tests/unit/ingest/frames_of_a_step.h"

namespace plumbline {
namespace {

using Progress = TraceAssembler::Progress;

TEST(Assembler, AWholeStepBecomesATrace) {
  TraceAssembler assembler(options_of_a_run());
  ASSERT_EQ(offer(assembler, frames_of_a_step(7)).progress, Progress::kStepDone);
  const auto trace = assembler.take_step().trace;
  EXPECT_EQ(trace->identity.id(), "p/j/r/0/7");
  ASSERT_EQ(trace->leaves.size(), 2u);
  EXPECT_EQ(trace->leaves[1].role, LeafRole::kParameter);
  ASSERT_EQ(trace->ops.size(), 1u);
  EXPECT_EQ(std::get<TensorRef>(trace->ops[0].arguments[1].value).value, 2u);
  ASSERT_EQ(trace->taps.size(), 2u);
  EXPECT_EQ(trace->taps[1].terms[0].weight, -1);
  ASSERT_EQ(trace->payloads.size(), 4u);
  EXPECT_EQ(std::string(trace->payloads.at(3)->begin(), trace->payloads.at(3)->end()), "ABCDEFGH");
  EXPECT_EQ(trace->payload_bytes(), 26u);
  EXPECT_EQ(trace->digest.size(), 32u);
}

TEST(Assembler, AFailedStepIsSkimmedAndTheNextOneTaken) {
  TraceAssembler assembler(options_of_a_run());
  auto frames = frames_of_a_step(1);
  frames[3].mutable_op()->mutable_arguments(0)->mutable_tensor()->set_value(9);
  int failed = 0;
  for (const auto& frame : frames) {
    const auto result = assembler.add(frame);
    if (result.progress == Progress::kStepFailed) {
      ++failed;
      EXPECT_EQ(result.violation.field, "op.arguments[0].tensor.value");
    } else {
      EXPECT_EQ(result.progress, Progress::kTaken);
    }
  }
  EXPECT_EQ(failed, 1);
  EXPECT_FALSE(assembler.in_step());
  EXPECT_EQ(offer(assembler, frames_of_a_step(2)).progress, Progress::kStepDone);
}

TEST(Assembler, PayloadsMayComeBeforeAndInterleaved) {
  auto frames = frames_of_a_step(1);
  std::vector<v1::AuditRequest> other = {frames[0],
                                         chunk(3, 0, 8, "ABC"),
                                         chunk(1, 0, 8, "1234"),
                                         chunk(3, 3, 8, "DEFGH"),
                                         frames[1],
                                         frames[2],
                                         frames[3],
                                         chunk(1, 4, 8, "5678"),
                                         frames[4],
                                         frames[5],
                                         frames[7],
                                         frames[9]};
  v1::AuditRequest end;
  end.mutable_step_end()->set_frames(other.size() + 1);
  other.push_back(end);
  const auto trace = trace_of(other);
  ASSERT_NE(trace, nullptr);
  EXPECT_EQ(trace->digest, trace_of(frames)->digest) << "chunks do not change what the step is";
}

TEST(Assembler, APayloadThatNothingNamesIsDropped) {
  auto frames = frames_of_a_step(1);
  frames.insert(frames.end() - 1, chunk(77, 0, 3, "xyz"));
  frames.back().mutable_step_end()->set_frames(frames.size());
  const auto trace = trace_of(frames);
  ASSERT_NE(trace, nullptr);
  EXPECT_EQ(trace->payloads.count(77), 0u);
}

TEST(Assembler, MemoryIsRefusedBeforeItIsTaken) {
  auto options = options_of_a_run();
  options.step_bytes_max = 1 << 20;
  TraceAssembler assembler(options);
  v1::AuditRequest begin;
  begin.mutable_step_begin()->set_step(1);
  EXPECT_EQ(assembler.add(begin).progress, Progress::kTaken);
  const auto result = assembler.add(chunk(1, 0, std::uint64_t{1} << 60, "x"));
  ASSERT_EQ(result.progress, Progress::kStepFailed);
  EXPECT_EQ(result.violation.code, absl::StatusCode::kResourceExhausted);
  EXPECT_NE(result.violation.description.find("--memory-limit"), std::string::npos);
}

TEST(Assembler, FramesWithoutPayloadsCountToo) {
  auto options = options_of_a_run();
  options.step_bytes_max = 1 << 16;
  TraceAssembler assembler(options);
  v1::AuditRequest begin;
  begin.mutable_step_begin()->set_step(1);
  assembler.add(begin);
  TraceAssembler::Result result;
  std::uint64_t frames = 0;
  for (; result.progress == Progress::kTaken && frames < 10000; ++frames) {
    result = assembler.add(leaf_frame(1 + frames, 1, v1::Leaf::STATE, std::string(100, 'n')));
  }
  EXPECT_EQ(result.progress, Progress::kStepFailed);
  EXPECT_EQ(result.violation.code, absl::StatusCode::kResourceExhausted);
}

TEST(Assembler, APartLiesInItsLeafAndInItsWhole) {
  const auto refused = [](const std::function<void(v1::Part*)>& change, bool of_tap) {
    auto frames = frames_of_a_step(0);
    v1::Part* part = of_tap ? frames[4].mutable_tap()->mutable_part() : frames[2].mutable_leaf()->mutable_part();
    if (!of_tap) set_tensor(part->mutable_tensor(), 2, 2);
    part->add_whole(5);
    part->add_start(3);
    change(part);
    TraceAssembler assembler(options_of_a_run());
    TraceAssembler::Result result;
    for (const auto& frame : frames) {
      result = assembler.add(frame);
      if (result.progress == Progress::kStepFailed) return result.violation.field;
    }
    EXPECT_EQ(result.progress, Progress::kStepDone);
    return std::string();
  };
  for (const bool of_tap : {false, true}) {
    const std::string field = of_tap ? "tap.part" : "leaf.part";
    EXPECT_EQ(refused([](v1::Part*) {}, of_tap), "");
    EXPECT_EQ(refused([](v1::Part* part) { part->set_start(0, 4); }, of_tap), field + ".start[0]");
    EXPECT_EQ(refused([](v1::Part* part) { part->set_start(0, -1); }, of_tap), field + ".start[0]");
    const auto range = [](std::int64_t start) {
      return [start](v1::Part* part) {
        part->add_whole(2);  // It is a range of two elements of [5, 2].
        part->set_start(0, start);
      };
    };
    EXPECT_EQ(refused(range(8), of_tap), "");
    EXPECT_EQ(refused(range(9), of_tap), field + ".start[0]");
    EXPECT_EQ(refused([](v1::Part* part) { part->set_whole(0, std::int64_t{1} << 62); }, of_tap),
              field + ".whole.sizes");
    const auto longer = [](v1::Part* part) {
      part->add_whole(1);
      part->add_start(0);
    };
    EXPECT_EQ(refused(longer, of_tap), field + ".whole");
    EXPECT_EQ(refused([](v1::Part* part) { part->clear_start(); }, of_tap), field + ".start");
  }
  const auto tensor = [](v1::Part* part) { return part->mutable_tensor(); };
  EXPECT_EQ(refused([&](v1::Part* part) { tensor(part)->set_value(1); }, false), "leaf.part.tensor.value");
  EXPECT_EQ(refused([&](v1::Part* part) { tensor(part)->set_offset(1); }, false), "leaf.part.tensor");
  EXPECT_EQ(refused([&](v1::Part* part) { part->clear_tensor(); }, false), "leaf.part.tensor.value");
}

TEST(Assembler, AStepWaitsForMemoryThatAnotherHolds) {
  MemoryBudget budget(1500000);
  auto options = options_of_a_run();
  options.budget = &budget;
  TraceAssembler first(options), second(options);
  v1::AuditRequest begin;
  begin.mutable_step_begin()->set_step(1);
  first.add(begin);
  second.add(begin);
  const std::string bytes(900000, 'x');
  const auto big = chunk(1, 0, bytes.size(), bytes);
  EXPECT_EQ(first.add(big).progress, Progress::kTaken);
  EXPECT_EQ(second.add(big).progress, Progress::kWait);
  bool released = false;
  second.when_released([&released] { released = true; });
  EXPECT_FALSE(released);
  const auto outside = chunk(0, 0, 1, "x");
  EXPECT_EQ(first.add(outside).progress, Progress::kStepFailed);  // And so gives its memory back.
  EXPECT_TRUE(released);
  EXPECT_EQ(second.add(big).progress, Progress::kTaken);
  EXPECT_EQ(budget.used(), bytes.size() + limits::kPayloadEntryBytes);
}

TEST(Assembler, WhatWasAnnouncedIsNotTakenFromOthers) {
  MemoryBudget budget(1500000);
  auto options = options_of_a_run();
  options.budget = &budget;
  options.step_bytes_max = 1500000;
  TraceAssembler assembler(options);
  v1::AuditRequest begin;
  begin.mutable_step_begin()->set_step(1);
  assembler.add(begin);
  EXPECT_EQ(assembler.add(chunk(1, 0, 1400000, "x")).progress, Progress::kTaken);
  EXPECT_EQ(budget.used(), 1 + limits::kPayloadEntryBytes);
  EXPECT_EQ(assembler.add(chunk(2, 0, 200000, "x")).violation.field, "data.total") << "of its own step it is";
}

TEST(Assembler, AMessageIsChargedUntilItsContentIs) {
  MemoryBudget budget(1 << 20);
  TraceAssembler::Options options = options_of_a_run();
  options.budget = &budget;
  TraceAssembler one(options), two(options);
  const auto frames = frames_of_a_step(1);
  ASSERT_EQ(one.add(frames[0]).progress, Progress::kTaken);
  const std::uint64_t before = budget.used();
  ASSERT_EQ(one.arrive(600000).progress, Progress::kTaken);
  EXPECT_EQ(budget.used(), before + 600000);
  EXPECT_EQ(two.arrive(600000).progress, Progress::kWait);
  bool called = false;
  two.when_released([&called] { called = true; });
  ASSERT_EQ(one.add(frames[1]).progress, Progress::kTaken);
  one.settle();
  EXPECT_TRUE(called);
  EXPECT_LT(budget.used(), 600000u) << "the content alone";
  EXPECT_EQ(two.arrive(600000).progress, Progress::kTaken);

  // Who waits for nobody is refused: with a step open, that step.
  EXPECT_EQ(one.arrive(2 << 20).progress, Progress::kWait);
  two.settle();
  const auto refused = one.arrive(2 << 20);
  EXPECT_EQ(refused.progress, Progress::kStepFailed);
  EXPECT_TRUE(refused.violation.of_the_moment);
  EXPECT_EQ(budget.used(), 0u) << "what the step held is given back";
  EXPECT_EQ(one.arrive(600000).progress, Progress::kTaken);
  EXPECT_EQ(budget.used(), 0u) << "the rest of it is skimmed";
  EXPECT_EQ(two.arrive(2 << 20).progress, Progress::kStepFailed);
  EXPECT_FALSE(two.in_step());
}

TEST(Assembler, ATraceHoldsItsMemoryUntilItIsGone) {
  MemoryBudget budget(1 << 20);
  auto options = options_of_a_run();
  options.budget = &budget;
  TraceAssembler assembler(options);
  ASSERT_EQ(offer(assembler, frames_of_a_step(1)).progress, Progress::kStepDone);
  {
    const AssembledStep step = assembler.take_step();
    EXPECT_GE(budget.used(), 26u);
  }
  EXPECT_EQ(budget.used(), 0u);
  ASSERT_EQ(offer(assembler, frames_of_a_step(2)).progress, Progress::kStepDone);
  EXPECT_GE(budget.used(), 26u) << "the next step counts as well";
}

TEST(Assembler, AStorageWrittenInPlaceKeepsItsSize) {
  auto frames = frames_of_a_step(1);
  auto* result = frames[3].mutable_op()->mutable_results(0);
  result->set_base(1);
  result->set_argument("self");
  EXPECT_NE(trace_of(frames), nullptr);
  result->set_count(3);
  TraceAssembler assembler(options_of_a_run());
  const auto refused = offer(assembler, frames);
  EXPECT_EQ(refused.progress, Progress::kStepFailed);
  EXPECT_EQ(refused.violation.field, "op.results[0].count");
}

TEST(Assembler, EndOfStream) {
  TraceAssembler assembler(options_of_a_run());
  EXPECT_TRUE(assembler.end_of_stream().ok());
  const auto frames = frames_of_a_step(1);
  assembler.add(frames[0]);
  EXPECT_EQ(assembler.end_of_stream().field, "step_end");
  assembler.add(chunk(1, 0, 8, "1234"));
  EXPECT_EQ(assembler.end_of_stream().field, "data.payload");
}

TEST(Assembler, EveryLimitOfAnOperation) {
  const auto refused = [](const std::function<void(v1::Op*)>& change) {
    auto frames = frames_of_a_step(1);
    change(frames[3].mutable_op());
    TraceAssembler assembler(options_of_a_run());
    return offer(assembler, frames).violation.field;
  };
  EXPECT_EQ(refused([](v1::Op* op) { op->clear_name(); }), "op.name");
  EXPECT_EQ(refused([](v1::Op* op) { op->set_name(std::string(limits::kTextBytesMax + 1, 'x')); }), "op.name");
  EXPECT_EQ(refused([](v1::Op* op) {
              for (int i = 0; i < limits::kArgumentsMax; ++i) op->add_arguments()->set_none(true);
            }),
            "op.arguments");
  EXPECT_EQ(refused([](v1::Op* op) {
              for (int i = 0; i < limits::kResultsMax; ++i) op->add_results();
            }),
            "op.results");
  EXPECT_EQ(refused([](v1::Op* op) {
              for (int i = 0; i <= limits::kListMax; ++i) {
                op->mutable_arguments(1)->mutable_integers()->add_values(i);
              }
            }),
            "op.arguments[1].integers.values");
  EXPECT_EQ(refused([](v1::Op* op) { op->mutable_arguments(1)->clear_value(); }), "op.arguments[1].value");
  EXPECT_EQ(refused([](v1::Op* op) { set_tensor(op->mutable_arguments(1)->mutable_scalar(), 1, 2); }),
            "op.arguments[1].scalar.sizes");
  EXPECT_EQ(refused([](v1::Op* op) { op->clear_results(); }), "op.decision");
  EXPECT_EQ(refused([](v1::Op* op) { op->mutable_results(0)->set_base(44); }), "op.results[0].base");
}

TEST(Assembler, EveryKindOfArgument) {
  auto frames = frames_of_a_step(1);
  auto* op = frames[3].mutable_op();
  op->add_arguments()->set_real(0.5);
  op->add_arguments()->set_integer(-3);
  op->add_arguments()->set_boolean(true);
  op->add_arguments()->set_text("mean");
  op->add_arguments()->mutable_integers()->add_values(4);
  op->add_arguments()->mutable_reals()->add_values(2.5);
  op->add_arguments()->mutable_booleans()->add_values(true);
  op->add_arguments()->set_dtype(v1::DTYPE_BFLOAT16);
  op->add_arguments()->set_none(true);
  set_tensor(op->add_arguments()->mutable_scalar(), 1, 1);
  set_tensor(op->add_arguments()->mutable_tensors()->add_tensors(), 2, 2);
  op->mutable_arguments(12)->mutable_tensors()->add_tensors();  // None in a list.
  op->add_arguments()->mutable_tensor();                        // An absent tensor.
  const auto trace = trace_of(frames);
  ASSERT_NE(trace, nullptr);
  const auto& arguments = trace->ops[0].arguments;
  EXPECT_EQ(std::get<double>(arguments[2].value), 0.5);
  EXPECT_EQ(std::get<std::int64_t>(arguments[3].value), -3);
  EXPECT_EQ(std::get<bool>(arguments[4].value), true);
  EXPECT_EQ(std::get<std::string>(arguments[5].value), "mean");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(arguments[6].value), std::vector<std::int64_t>{4});
  EXPECT_EQ(std::get<std::vector<double>>(arguments[7].value), std::vector<double>{2.5});
  EXPECT_EQ(std::get<std::vector<bool>>(arguments[8].value), std::vector<bool>{true});
  EXPECT_EQ(std::get<Format>(arguments[9].value), Format::kBFloat16);
  EXPECT_TRUE(std::holds_alternative<None>(arguments[10].value));
  EXPECT_EQ(std::get<ScalarEdge>(arguments[11].value).source.value, 1u);
  EXPECT_EQ(std::get<std::vector<TensorRef>>(arguments[12].value)[1].value, 0u);
  EXPECT_TRUE(std::holds_alternative<None>(arguments[13].value));
}

}  // namespace
}  // namespace plumbline
