#include "client/cpp/names.h"

#include <gtest/gtest.h>

#include "plumbline/v1/query.pb.h"
#include "plumbline/v1/verdict.pb.h"

namespace plumbline {
namespace {

TEST(Names, ValuesLoseTheirPrefix) {
  EXPECT_EQ(short_name(v1::OUTCOME_TYPE_II), "TYPE_II");
  EXPECT_EQ(short_name(v1::GRADE_FIRST_ORDER), "FIRST_ORDER");
  EXPECT_EQ(short_name(v1::CAUSE_REFERENCE_AT_FAULT), "REFERENCE_AT_FAULT");
  EXPECT_EQ(short_name(v1::TRACE_STATE_KEPT), "KEPT");
}

TEST(Names, WhatSaysNothingKeepsIt) {
  EXPECT_EQ(short_name(v1::OUTCOME_UNSPECIFIED), "OUTCOME_UNSPECIFIED");
  EXPECT_EQ(short_name(v1::StepUnderWay::STAGE_QUEUED), "STAGE_QUEUED") << "it lies within a message";
  EXPECT_EQ(short_name(static_cast<v1::Outcome>(77)), "77") << "a newer daemon's";
}

TEST(Names, JsonHasThemAndLeavesTextsAlone) {
  v1::Verdict verdict;
  verdict.set_job("OUTCOME_TYPE_I");
  verdict.set_verdict(v1::OUTCOME_TYPE_II);
  verdict.add_taps()->set_outcome(v1::OUTCOME_INCONCLUSIVE);
  verdict.mutable_time()->set_seconds(1);
  EXPECT_EQ(*to_json(verdict, false), R"({"job":"OUTCOME_TYPE_I","time":"1970-01-01T00:00:01Z","verdict":"TYPE_II",)"
                                      R"("taps":[{"outcome":"INCONCLUSIVE"}]})");
  EXPECT_NE(to_json(verdict, true)->find(R"("grade":"GRADE_UNSPECIFIED")"), std::string::npos);
  v1::StepUnderWay under_way;
  under_way.set_stage(v1::StepUnderWay::STAGE_QUEUED);
  EXPECT_EQ(*to_json(under_way, false), R"({"stage":"STAGE_QUEUED"})");
}

}  // namespace
}  // namespace plumbline
