#include "server/access/access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace plumbline {
namespace {

using absl::StatusCode;
using absl::StrCat;

// The hashes of "secret" and of "other", as sha256sum prints them.
constexpr char kSecret[] = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
constexpr char kOther[] = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

Caller user(uid_t number, std::vector<gid_t> groups = {}) {
  return {Caller::Kind::kUser, std::to_string(number), {number, 1, std::move(groups)}};
}
Caller certificate(const std::string& name) { return {Caller::Kind::kCertificate, name, {}}; }

class AccessTest : public ::testing::Test {
 protected:
  AccessTest() {
    std::string pattern = testing::TempDir() + "plumbline-access-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    options_.daemon_user = 900;
  }
  ~AccessTest() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = StrCat(directory_, "/", name);
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return path;
  }
  void tokens(const std::string& text) { options_.token_file = write("tokens", text); }
  void policy(const std::string& text) { options_.policy = write("policy", text); }
  std::unique_ptr<Access> open() {
    auto access = Access::open(options_);
    EXPECT_TRUE(access.ok()) << access.status();
    return access.ok() ? *std::move(access) : nullptr;
  }
  std::string refusal() { return std::string(Access::open(options_).status().message()); }

  std::string directory_;
  Access::Options options_;
};

TEST_F(AccessTest, WithoutAPolicyEverybodySeesHisOwn) {
  const auto access = open();
  const Caller grace = user(1000);
  EXPECT_EQ(grace.name(), "uid:1000");
  EXPECT_TRUE(access->may(grace, Role::kStream, "p"));
  EXPECT_FALSE(access->may(grace, Role::kRead, "p"));
  EXPECT_TRUE(access->sees(grace, "p", "uid:1000"));
  EXPECT_TRUE(access->handles(grace, "p", "uid:1000"));
  for (const char* owner : {"uid:1001", "uid:100", "token:1000", ""}) {
    EXPECT_FALSE(access->sees(grace, "p", owner)) << owner;
    EXPECT_FALSE(access->handles(grace, "p", owner)) << owner;
  }
  EXPECT_FALSE(access->seen_by(grace).all);
  EXPECT_EQ(access->seen_by(grace).owner, "uid:1000");
  for (const uid_t root : {uid_t{0}, uid_t{900}}) {
    EXPECT_TRUE(access->handles(user(root), "p", "uid:1001"));
    EXPECT_TRUE(access->seen_by(user(root)).all);
  }
  EXPECT_TRUE(access->check_known(grace).ok());
  EXPECT_FALSE(access->takes_tokens());
  EXPECT_EQ(access->bearer("").status().code(), StatusCode::kUnauthenticated);
}

TEST_F(AccessTest, ATokenNamedAfterRootIsNotRoot) {
  tokens(StrCat("0 ", kSecret));
  const auto access = open();
  Caller caller = *access->bearer("secret");
  caller.peer.user = 0;  // Root sent it: what counts is the token.
  EXPECT_FALSE(access->sees(caller, "p", "uid:1000"));
  EXPECT_FALSE(access->seen_by(caller).all);
}

TEST_F(AccessTest, APolicyGrantsRolesInProjects) {
  tokens(StrCat("ci ", kSecret, "\nops ", kOther));
  policy(R"(
      projects: "a"
      projects: "b"
      grants { projects: "a" roles: STREAM users: "1000" tokens: "ci" groups: "50" }
      grants { projects: "b" roles: READ users: "1000" }
      grants { projects: "*" roles: ADMIN tokens: "ops" certificates: "ops.example.org" })");
  const auto access = open();
  const Caller grace = user(1000), member = user(1001, {7, 50}), nobody = user(1002, {7});
  const Caller ci = *access->bearer("secret"), ops = *access->bearer("other");
  for (const Caller& caller : {grace, member, ci}) {
    EXPECT_TRUE(access->may(caller, Role::kStream, "a"));
    EXPECT_FALSE(access->may(caller, Role::kStream, "b"));
    EXPECT_FALSE(access->may(caller, Role::kStream, "c"));
    EXPECT_FALSE(access->may(caller, Role::kRead, "a"));
  }
  EXPECT_FALSE(access->may(nobody, Role::kStream, "a"));
  EXPECT_EQ(access->check_known(nobody).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(access->check_known(Caller{}).code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(access->check_known(grace).ok());
  EXPECT_TRUE(access->check_known(user(0)).ok());
  EXPECT_FALSE(access->may(Caller{}, Role::kStream, "a")) << "nobody can be granted to whoever comes";
  EXPECT_TRUE(access->sees(grace, "b", "uid:7"));
  EXPECT_FALSE(access->handles(grace, "b", "uid:7"));
  EXPECT_EQ(access->seen_by(grace).projects, std::set<std::string>{"b"});
  EXPECT_TRUE(access->sees(nobody, "a", "uid:1002")) << "what he opened before the policy";
  for (const Caller& caller : {ops, certificate("ops.example.org"), user(0)}) {
    EXPECT_TRUE(access->may(caller, Role::kStream, "c"));
    EXPECT_TRUE(access->handles(caller, "c", "uid:7"));
    EXPECT_TRUE(access->seen_by(caller).all);
  }
  EXPECT_FALSE(access->may(certificate("other.example.org"), Role::kRead, "a"));
  const absl::Status denied = access->check(ci, Role::kStream, "b");
  EXPECT_EQ(denied.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(denied.message(),
            "identity.project: expected a project in which token:ci has the role STREAM, found \"b\"");
}

TEST_F(AccessTest, TokensEnd) {
  const auto at = [](absl::Duration from_now) {
    return absl::FormatTime(absl::RFC3339_full, absl::Now() + from_now, absl::UTCTimeZone());
  };
  tokens(
      StrCat("# who may come\n\nci ", kSecret, " ", at(-absl::Hours(1)), "\n  ops\t", kOther, " ", at(absl::Hours(1))));
  const auto access = open();
  EXPECT_EQ(access->bearer("other")->name(), "token:ops");
  const absl::Status expired = access->bearer("secret").status();
  EXPECT_EQ(expired.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(expired.message().find("expired at"), std::string::npos) << expired;
  for (const char* wrong : {"", "Secret", "secret ", "secre", kSecret}) {
    EXPECT_EQ(access->bearer(wrong).status().code(), StatusCode::kUnauthenticated) << wrong;
  }
}

TEST_F(AccessTest, ReloadsBothOrNone) {
  tokens(StrCat("ci ", kSecret));
  policy(R"(projects: "a" grants { projects: "a" roles: STREAM tokens: "ci" })");
  const auto access = open();
  const Caller ci = *access->bearer("secret");
  tokens(StrCat("ops ", kOther));
  EXPECT_EQ(access->reload().code(), StatusCode::kInvalidArgument) << "the policy names a token that is gone";
  EXPECT_TRUE(access->bearer("secret").ok());
  EXPECT_TRUE(access->still(ci).ok());
  policy(R"(projects: "a" grants { projects: "a" roles: STREAM tokens: "ops" })");
  ASSERT_TRUE(access->reload().ok());
  EXPECT_EQ(access->bearer("secret").status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(access->still(ci).code(), StatusCode::kUnauthenticated);
  EXPECT_TRUE(access->still(user(1000)).ok());
}

TEST_F(AccessTest, SaysWhatIsWrongWithAPolicy) {
  tokens(StrCat("ci ", kSecret));
  for (const auto& [text, wrong] : std::initializer_list<std::pair<std::string, std::string>>{
           {"projects: \"a\"\ngrants {\n projects: \"b\" roles: READ users: \"0\" }",
            "line 3: grants.projects: expected \"*\" or one of `projects`, found \"b\""},
           {"grants { roles: READ users: \"0\" }",
            "line 1: grants.projects: expected at least one project, found none"},
           {"grants { projects: \"*\" users: \"0\" }",
            "line 1: grants.roles: expected STREAM, READ or ADMIN, found none"},
           {"grants { projects: \"*\" roles: ROLE_UNSPECIFIED users: \"0\" }",
            "line 1: grants.roles: expected STREAM, READ or ADMIN, found 0"},
           {"grants { projects: \"*\" roles: READ users: \"no-such-user\" }",
            "line 1: grants.users: expected a user of this machine, found \"no-such-user\""},
           {"grants { projects: \"*\" roles: READ groups: \"no-such-group\" }",
            "line 1: grants.groups: expected a group of this machine, found \"no-such-group\""},
           {"grants { projects: \"*\" roles: READ tokens: \"cd\" }",
            "line 1: grants.tokens: expected a name in --token-file, found \"cd\""},
           {"grants { projects: \"*\" roles: READ }", "found nobody"},
           {"grants { projects: \"*\" roles: OWNER }", "line 1, column 37"},
           {"projects: \"a\"\nquotas {\n projects: \"b\" streams: 1 }",
            "line 3: quotas.projects: expected \"*\" or one of `projects`, found \"b\""},
           {"quotas {\n projects: \"*\"\n streams: 0 }", "line 3: quotas.streams: expected at least 1, found 0"},
           {"quotas { projects: \"*\" bytes_in_flight: 4096 }",
            "line 1: quotas.bytes_in_flight: expected at least 1048576, found 4096"},
           {"quotas { projects: \"*\" job_bytes_in_flight: 4096 }",
            "line 1: quotas.job_bytes_in_flight: expected at least 1048576, found 4096"},
           {"quotas { projects: \"*\" }", "line 1: quotas.streams: expected a limit, of streams, bytes_in_flight"},
           {"quotas { verdicts: 7 }", "line 1: quotas.projects: expected at least one project, found none"},
           {"quotas { projects: \"*\" streams: 1 }\nquotas { projects: \"*\" verdicts: 1 }",
            "line 2: quotas.projects: expected a project of one quota, found another of \"*\""},
           {"quotas { projects: \"*\" streams: -1 }", "line 1, column 33"},
           {"quotas { projects: \"*\" streams: 1e99 }", "line 1, column 33"},
           {"grants {", "line 1"}}) {
    policy(text);
    EXPECT_NE(refusal().find(wrong), std::string::npos) << refusal();
    EXPECT_EQ(refusal().rfind(StrCat("--policy: ", options_.policy, ":"), 0), 0u) << refusal();
  }
  options_.policy = directory_ + "/none";
  EXPECT_EQ(refusal(), StrCat("--policy: ", directory_, "/none cannot be read"));
}

TEST_F(AccessTest, AProjectHasTheQuotaThatNamesItOrThatOfAll) {
  EXPECT_EQ(open()->quota("a").streams, Quota::kNone) << "without a policy";
  policy(R"(projects: "a" projects: "b"
            quotas { projects: "a" streams: 3 verdicts: 7 }
            quotas { projects: "*" streams: 9 kept_trace_bytes: 1048576 })");
  const auto access = open();
  EXPECT_EQ(access->quota("a").streams, 3u);
  EXPECT_EQ(access->quota("a").verdicts, 7u);
  EXPECT_EQ(access->quota("a").kept_trace_bytes, Quota::kNone) << "it has no part of another quota";
  for (const char* other : {"b", "c", "*", ""}) {
    EXPECT_EQ(access->quota(other).streams, 9u) << other;
    EXPECT_EQ(access->quota(other).kept_trace_bytes, 1048576u) << other;
  }
  policy(R"(projects: "a" quotas { projects: "a" streams: 4 })");
  ASSERT_TRUE(access->reload().ok());
  EXPECT_EQ(access->quota("a").streams, 4u);
  EXPECT_EQ(access->quota("b").streams, Quota::kNone);
}

TEST_F(AccessTest, SaysWhatIsWrongWithTokensAndQuotesNone) {
  for (const auto& [text, wrong] : std::initializer_list<std::pair<std::string, std::string>>{
           {"ci", "line 1: expected NAME HASH"},
           {StrCat("ci ", kSecret, "\nci ", kOther), "line 2: expected a name that no earlier line has"},
           {StrCat("c/i ", kSecret), "line 1: expected NAME HASH"},
           {StrCat("ci ", kSecret, " soon"), "line 1: expected a time"},
           {StrCat("ci ", kSecret, " 2027-01-01T00:00:00Z more"), "line 1: expected NAME HASH"},
           {"ci the-secret-itself", "line 1: expected the token's SHA-256 as 64 hexadecimal digits"}}) {
    tokens(text);
    EXPECT_NE(refusal().find(wrong), std::string::npos) << refusal();
    EXPECT_EQ(refusal().find("the-secret-itself"), std::string::npos) << refusal();
  }
  tokens(StrCat("ci ", kSecret));
  ASSERT_EQ(chmod(options_.token_file.c_str(), 0620), 0);
  EXPECT_NE(refusal().find("expected that its owner alone can write it"), std::string::npos) << refusal();
  options_.token_file = directory_;
  EXPECT_NE(refusal().find("expected a file"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace plumbline
