#include "server/store/postgres/node_steps.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/fault/fault.h"
#include "server/store/postgres/schema.h"

namespace plumbline {
namespace {

// The rank in the identity of the verdict of all ranks is -1, and the clock that of the server.
constexpr char kNow[] = "CAST(extract(epoch FROM clock_timestamp())*1000000 AS BIGINT)";
constexpr char kSameStep[] = "project=? AND job=? AND run=? AND step=?";

SqlStatement& bind(SqlStatement& statement, const StepIdentity& step) {
  return statement.bind(step.project).bind(step.job).bind(step.run).bind(step.step);
}

// Of one row, or of none.
absl::StatusOr<bool> holds(const PostgresConnection& connection, const std::string& sql, const StepIdentity& step) {
  auto asked = connection.prepare(sql);
  if (!asked.ok()) return asked.status();
  const SqlReset reset(*asked);
  return bind(*asked, step).step();
}

std::string array(const std::vector<std::int32_t>& ranks) { return absl::StrCat("{", absl::StrJoin(ranks, ","), "}"); }

std::int64_t microseconds(absl::Duration time) { return absl::ToInt64Microseconds(time); }

std::string name_of(const StepIdentity& step) {
  return absl::StrCat(step.project, "/", step.job, "/", step.run, " step ", step.step);
}

absl::Status accuse(const PostgresConnection& connection, const StepIdentity& step, const std::string& fault) {
  auto told = connection.prepare(absl::StrCat("UPDATE node_steps SET fault=? WHERE fault='' AND ", kSameStep));
  if (!told.ok()) return told.status();
  told->bind(fault);
  return bind(*told, step).run();
}

// Whether another daemon gave one of these ranks: then the answer says so, and the step is told of it, unless it is the
// same part, from a client that changed over.
absl::StatusOr<bool> given_elsewhere(const PostgresConnection& connection, const NodePartRow& part,
                                     absl::Status* answer) {
  auto others = connection.prepare(
      absl::StrCat("SELECT node, digest, CAST(ranks AS TEXT) FROM node_parts WHERE ", kSameStep,
                   " AND node<>current_setting('plumbline.node') AND ranks && CAST(? AS INTEGER[])"));
  if (!others.ok()) return others.status();
  const auto found = bind(*others, part.step).bind(array(part.ranks)).step();
  if (!found.ok()) return found.status();
  if (!*found) {
    others->reset();
    return false;
  }
  const std::string node = others->text(0), digest = others->text(1), ranks = others->text(2);
  others->reset();
  if (digest == part.digest && ranks == array(part.ranks)) return true;
  const std::string fault =
      absl::StrCat("ranks ", absl::StrJoin(part.ranks, ", "), " came from one daemon, and ranks ",
                   ranks.substr(1, ranks.size() - 2), " from another, ", node, ": each rank streams to one");
  *answer = absl::AlreadyExistsError(absl::StrCat(name_of(part.step), ": ", fault));
  if (auto told = accuse(connection, part.step, fault); !told.ok()) return told;
  return true;
}

}  // namespace

absl::Status store_node_part(const PostgresConnection& connection, const NodePartRow& part, const std::string& owner,
                             absl::Status* answer) {
  const auto judged = holds(connection, absl::StrCat("SELECT 1 FROM steps WHERE rank=-1 AND ", kSameStep), part.step);
  if (!judged.ok() || *judged) return judged.status();  // A part that was shipped before, or that came too late.
  auto step = connection.prepare(
      absl::StrCat("INSERT INTO node_steps(project, job, run, step, ranks_of_run, first_us) VALUES(?,?,?,?,?,", kNow,
                   ") ON CONFLICT(project, job, run, step) DO NOTHING"));
  if (!step.ok()) return step.status();
  if (auto made = bind(*step, part.step).bind(part.ranks_of_run).run(); !made.ok()) return made;

  // Locked, so that nobody takes the step to be judged between here and the commit.
  auto known = connection.prepare(
      absl::StrCat("SELECT CAST(closed AS INTEGER), ranks_of_run FROM node_steps WHERE ", kSameStep, " FOR UPDATE"));
  if (!known.ok()) return known.status();
  if (const auto row = bind(*known, part.step).step(); !row.ok()) return row.status();
  const bool closed = known->integer(0) != 0;
  const std::int64_t ranks_of_run = known->integer(1);
  known->reset();
  if (closed) return absl::OkStatus();
  if (ranks_of_run != part.ranks_of_run) {
    const std::string fault = absl::StrCat("ranks ", absl::StrJoin(part.ranks, ", "), " are of a run of ",
                                           part.ranks_of_run, ", and others of one of ", ranks_of_run);
    *answer = absl::InvalidArgumentError(absl::StrCat(name_of(part.step), ": ", fault));
    return accuse(connection, part.step, fault);
  }
  const auto elsewhere = given_elsewhere(connection, part, answer);
  if (!elsewhere.ok() || *elsewhere) return elsewhere.status();

  auto written = connection.prepare(
      "INSERT INTO node_parts(project, job, run, step, rank, ranks, node, owner, digest, part) "
      "VALUES(?,?,?,?,?,CAST(? AS INTEGER[]),current_setting('plumbline.node'),?,?,?) "
      "ON CONFLICT(project, job, run, step, rank) DO UPDATE SET ranks=excluded.ranks, digest=excluded.digest, "
      "part=excluded.part");
  if (!written.ok()) return written.status();
  bind(*written, part.step).bind(part.step.rank).bind(array(part.ranks)).bind(owner).bind(part.digest);
  if (auto done = written->bind_blob(part.part).run(); !done.ok()) return done;
  auto counted = connection.prepare(absl::StrCat(
      "UPDATE node_steps AS s SET ready_us=", kNow,
      " WHERE ready_us IS NULL AND s.project=? AND s.job=? AND s.run=? AND s.step=? AND ranks_of_run<=(SELECT "
      "sum(cardinality(ranks)) FROM node_parts AS p WHERE p.project=s.project AND p.job=s.job AND p.run=s.run AND "
      "p.step=s.step)"));
  if (!counted.ok()) return counted.status();
  return bind(*counted, part.step).run();
}

absl::Status forget_node_steps(const PostgresConnection& connection, const StepIdentity& run) {
  auto removed = connection.prepare("DELETE FROM node_steps WHERE project=? AND job=? AND run=?");
  if (!removed.ok()) return removed.status();
  return removed->bind(run.project).bind(run.job).bind(run.run).run();
}

NodeSteps::NodeSteps(Options options)
    : options_(std::move(options)),
      connection_(options_.settings),
      stop_([this] {
        const std::lock_guard lock(mutex_);
        return end_;
      }),
      thread_([this] { contained("the thread that judges steps of several nodes", [this] { run(); }).IgnoreError(); }) {
}

NodeSteps::~NodeSteps() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void NodeSteps::wake() {
  {
    const std::lock_guard lock(mutex_);
    due_ = true;
  }
  wake_.notify_all();
}

void NodeSteps::run() {
  for (;;) {
    absl::StatusOr<bool> open = false;
    const absl::Status fault = contained("a verdict of several nodes", [&] { open = attempt(); });
    if (!fault.ok()) open = fault;
    // That the history is away the shipper tells.
    const bool tells = !open.ok() && !absl::IsCancelled(open.status()) && !absl::IsUnavailable(open.status());
    if (tells && !std::exchange(told_, true) && options_.trouble)
      options_.trouble(std::string(open.status().message()));
    if (open.ok()) told_ = false;
    std::unique_lock lock(mutex_);
    const absl::Duration pause = !open.ok() || *open ? options_.every : options_.idle;
    wake_.wait_for(lock, absl::ToChronoNanoseconds(pause), [this] { return end_ || due_; });
    if (end_) return;
    due_ = false;
  }
}

absl::StatusOr<bool> NodeSteps::attempt() {
  const SqlStop stop(connection_, stop_);
  if (auto connected = connection_.connect(); !connected.ok()) return connected;
  // Of a history that no shipper has made or upgraded yet.
  const auto there = connection_.integer("SELECT CAST(to_regclass('node_steps') IS NOT NULL AS INTEGER)");
  if (!there.ok()) return there.status();
  if (*there == 0) return false;
  for (;;) {
    if (auto gone = connection_.run("DELETE FROM node_steps AS n USING steps AS s WHERE s.project=n.project AND "
                                    "s.job=n.job AND s.run=n.run AND s.rank=-1 AND s.step=n.step");
        !gone.ok()) {
      return gone;
    }
    NodeStep step;
    const auto claimed = claim(&step);
    if (!claimed.ok()) return claimed.status();
    if (!*claimed) break;
    if (auto loaded = load(&step); !loaded.ok()) return loaded;
    if (auto stored = options_.judge(step); !stored.ok()) return stored;
  }
  auto ours = connection_.prepare("SELECT 1 FROM node_parts WHERE node=? LIMIT 1");
  if (!ours.ok()) return ours.status();
  const SqlReset reset(*ours);
  return ours->bind(options_.node).step();
}

// Who had the right last and made nothing of it leaves it to the others for a while.
absl::StatusOr<bool> NodeSteps::claim(NodeStep* step) {
  auto claimed = connection_.prepare(absl::StrCat(
      "UPDATE node_steps AS s SET closed=TRUE, judge=?, judged_until_us=", kNow,
      "+? FROM (SELECT n.project, n.job, n.run, n.step FROM node_steps AS n, (SELECT ", kNow,
      " AS now_us) AS clock WHERE n.judged_until_us+(CASE WHEN n.judge=? THEN CAST(? AS BIGINT) ELSE 0 END)<now_us AND "
      "coalesce(n.ready_us, n.first_us+?)<=now_us AND "
      "((SELECT p.node FROM node_parts AS p WHERE p.project=n.project AND p.job=n.job AND p.run=n.run AND "
      "p.step=n.step ORDER BY p.rank LIMIT 1)=? OR (coalesce(n.ready_us, n.first_us+?)+?<=now_us AND EXISTS(SELECT 1 "
      "FROM node_parts AS p WHERE p.project=n.project AND p.job=n.job AND p.run=n.run AND p.step=n.step AND "
      "p.node=?))) "
      "ORDER BY n.first_us LIMIT 1 FOR UPDATE OF n SKIP LOCKED) AS due WHERE s.project=due.project AND "
      "s.job=due.job AND s.run=due.run AND s.step=due.step RETURNING s.project, s.job, s.run, s.step, "
      "s.ranks_of_run, s.fault"));
  if (!claimed.ok()) return claimed.status();
  const SqlReset reset(*claimed);
  const std::int64_t deadline = microseconds(options_.deadline), others_after = microseconds(options_.others_after);
  claimed->bind(options_.node).bind(microseconds(options_.lease)).bind(options_.node).bind(others_after);
  claimed->bind(deadline).bind(options_.node);
  const auto row = claimed->bind(deadline).bind(others_after).bind(options_.node).step();
  if (!row.ok() || !*row) return row;
  step->step = {claimed->text(0), claimed->text(1), claimed->text(2), 0, claimed->integer(3)};
  step->ranks_of_run = static_cast<std::int32_t>(claimed->integer(4));
  step->fault = claimed->text(5);
  return true;
}

absl::Status NodeSteps::load(NodeStep* step) {
  auto parts =
      connection_.prepare(absl::StrCat("SELECT owner, part FROM node_parts WHERE ", kSameStep, " ORDER BY rank"));
  if (!parts.ok()) return parts.status();
  const SqlReset reset(*parts);
  bind(*parts, step->step);
  for (;;) {
    const auto row = parts->step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    if (step->parts.empty()) step->owner = parts->text(0);
    step->parts.push_back(parts->text(1));
  }
}

}  // namespace plumbline
