#include "server/store/postgres/schema.h"

#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace plumbline {
namespace {

// What each version added to the one before it; an empty schema is of version 0. A version that was released is never
// changed again. `@` stands for the schema: triggers run in sessions of other people, too, who look elsewhere first.
// Texts are compared byte by byte, as the store's pages expect.
constexpr char kVersion1[] = R"sql(
-- Not IF NOT EXISTS, which asks for the right to make schemas first.
DO $$ BEGIN IF to_regnamespace('@') IS NULL THEN CREATE SCHEMA @; END IF; END $$;

CREATE TABLE @.history(
  only_row BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_row),
  product TEXT NOT NULL, version INTEGER NOT NULL, last_sequence BIGINT NOT NULL);
INSERT INTO @.history VALUES(TRUE, 'plumbline', 0, 0);
CREATE SEQUENCE @.verdict_sequence;

CREATE TABLE @.runs(
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  rank INTEGER NOT NULL, first_seen_us BIGINT NOT NULL, last_seen_us BIGINT NOT NULL,
  last_step BIGINT NOT NULL DEFAULT -1, client TEXT COLLATE "C" NOT NULL DEFAULT '',
  owner TEXT COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY(project, job, run, rank)) WITH (fillfactor=50);

CREATE TABLE @.memories(
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  rank INTEGER NOT NULL, memory BYTEA NOT NULL,
  PRIMARY KEY(project, job, run, rank)) WITH (fillfactor=50);

CREATE TABLE @.jobs(
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL,
  first_seen_us BIGINT NOT NULL, last_seen_us BIGINT NOT NULL,
  type_i BIGINT NOT NULL DEFAULT 0, type_ii BIGINT NOT NULL DEFAULT 0, inconclusive BIGINT NOT NULL DEFAULT 0,
  missed BIGINT NOT NULL DEFAULT 0, errors BIGINT NOT NULL DEFAULT 0, bytes BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY(project, job)) WITH (fillfactor=50);

-- That a step has one verdict cannot be a key of a table that is cut by time.
CREATE TABLE @.steps(
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  rank INTEGER NOT NULL, step BIGINT NOT NULL, digest TEXT COLLATE "C" NOT NULL, time_us BIGINT NOT NULL,
  PRIMARY KEY(project, job, run, rank, step));

CREATE TABLE @.verdicts(
  sequence BIGINT NOT NULL DEFAULT nextval('@.verdict_sequence'),
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  rank INTEGER NOT NULL, step BIGINT NOT NULL,
  outcome INTEGER NOT NULL, grade INTEGER NOT NULL, cause INTEGER NOT NULL, margin DOUBLE PRECISION,
  digest TEXT COLLATE "C" NOT NULL, time_us BIGINT NOT NULL, audit_seconds DOUBLE PRECISION NOT NULL,
  operations BIGINT NOT NULL, opaque BIGINT NOT NULL, summary BYTEA NOT NULL, detail BYTEA NOT NULL,
  surprise DOUBLE PRECISION,
  PRIMARY KEY(sequence, time_us)) PARTITION BY RANGE(time_us);
CREATE INDEX verdicts_by_time ON @.verdicts USING BRIN(time_us);
CREATE INDEX verdicts_by_step ON @.verdicts(project, job, run, rank, step);
CREATE INDEX verdicts_by_job ON @.verdicts(project, job, outcome, sequence);
CREATE INDEX verdicts_by_surprise ON @.verdicts(project, job, surprise, margin);

CREATE TABLE @.errors(
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  rank INTEGER NOT NULL, step BIGINT NOT NULL, digest TEXT COLLATE "C" NOT NULL, code INTEGER NOT NULL,
  message TEXT NOT NULL, time_us BIGINT NOT NULL,
  PRIMARY KEY(project, job, run, rank, step, digest));
CREATE INDEX errors_by_time ON @.errors(time_us);

CREATE TABLE @.gaps(
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  rank INTEGER NOT NULL, step BIGINT NOT NULL, missed BIGINT NOT NULL, reasons TEXT NOT NULL,
  PRIMARY KEY(project, job, run, rank, step));

CREATE FUNCTION @.run_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO @.jobs AS j(project, job, first_seen_us, last_seen_us)
    VALUES(new.project, new.job, new.first_seen_us, new.last_seen_us)
    ON CONFLICT(project, job) DO UPDATE SET first_seen_us=least(j.first_seen_us, excluded.first_seen_us),
      last_seen_us=greatest(j.last_seen_us, excluded.last_seen_us);
  RETURN NULL;
END $$;
CREATE FUNCTION @.run_seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  UPDATE @.jobs SET first_seen_us=least(first_seen_us, new.first_seen_us),
    last_seen_us=greatest(last_seen_us, new.last_seen_us) WHERE project=new.project AND job=new.job;
  RETURN NULL;
END $$;
CREATE FUNCTION @.run_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM @.memories WHERE project=old.project AND job=old.job AND run=old.run AND rank=old.rank;
  DELETE FROM @.jobs WHERE project=old.project AND job=old.job AND
    NOT EXISTS(SELECT 1 FROM @.runs AS r WHERE r.project=old.project AND r.job=old.job);
  RETURN NULL;
END $$;
CREATE FUNCTION @.verdict_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO @.steps VALUES(new.project, new.job, new.run, new.rank, new.step, new.digest, new.time_us);
  UPDATE @.jobs SET type_i=type_i+(new.outcome=1)::int, type_ii=type_ii+(new.outcome=2)::int,
    inconclusive=inconclusive+(new.outcome=3)::int, bytes=bytes+octet_length(new.summary)+octet_length(new.detail)
    WHERE project=new.project AND job=new.job;
  UPDATE @.runs SET last_step=new.step
    WHERE project=new.project AND job=new.job AND run=new.run AND rank=new.rank AND last_step<new.step;
  RETURN NULL;
END $$;
CREATE FUNCTION @.verdict_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM @.steps
    WHERE project=old.project AND job=old.job AND run=old.run AND rank=old.rank AND step=old.step;
  UPDATE @.jobs SET type_i=type_i-(old.outcome=1)::int, type_ii=type_ii-(old.outcome=2)::int,
    inconclusive=inconclusive-(old.outcome=3)::int, bytes=bytes-octet_length(old.summary)-octet_length(old.detail)
    WHERE project=old.project AND job=old.job;
  RETURN NULL;
END $$;
CREATE FUNCTION @.error_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'INSERT' THEN
    UPDATE @.jobs SET errors=errors+1 WHERE project=new.project AND job=new.job;
  ELSE
    UPDATE @.jobs SET errors=errors-1 WHERE project=old.project AND job=old.job;
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION @.gap_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE @.jobs SET missed=missed-old.missed WHERE project=old.project AND job=old.job;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    UPDATE @.jobs SET missed=missed+new.missed WHERE project=new.project AND job=new.job;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER run_added AFTER INSERT ON @.runs FOR EACH ROW EXECUTE FUNCTION @.run_added();
CREATE TRIGGER run_seen AFTER UPDATE OF first_seen_us, last_seen_us ON @.runs FOR EACH ROW
  WHEN (old.first_seen_us<>new.first_seen_us OR old.last_seen_us<>new.last_seen_us) EXECUTE FUNCTION @.run_seen();
CREATE TRIGGER run_removed AFTER DELETE ON @.runs FOR EACH ROW EXECUTE FUNCTION @.run_removed();
CREATE TRIGGER verdict_added AFTER INSERT ON @.verdicts FOR EACH ROW EXECUTE FUNCTION @.verdict_added();
CREATE TRIGGER verdict_removed AFTER DELETE ON @.verdicts FOR EACH ROW EXECUTE FUNCTION @.verdict_removed();
CREATE TRIGGER error_changed AFTER INSERT OR DELETE ON @.errors FOR EACH ROW EXECUTE FUNCTION @.error_changed();
CREATE TRIGGER gap_changed AFTER INSERT OR UPDATE OF missed OR DELETE ON @.gaps FOR EACH ROW
  EXECUTE FUNCTION @.gap_changed();

-- A day's partition is made beside the table and attached: that keeps neither readers nor writers waiting, as making it
-- a partition at once, or a default partition, would.
CREATE FUNCTION @.make_day(time_us BIGINT) RETURNS void LANGUAGE plpgsql AS $$ DECLARE
  day BIGINT := floor(time_us::numeric / 86400000000);
  name TEXT := 'verdicts_' || to_char(TIMESTAMP 'epoch' + day * INTERVAL '1 day', 'YYYYMMDD');
BEGIN
  IF to_regclass('@.' || name) IS NOT NULL THEN RETURN; END IF;
  EXECUTE format('CREATE TABLE @.%I (LIKE @.verdicts INCLUDING ALL)', name);
  EXECUTE format('ALTER TABLE @.verdicts ATTACH PARTITION @.%I FOR VALUES FROM (%s) TO (%s)', name,
    day * 86400000000, (day + 1) * 86400000000);
END $$;
-- Of the oldest days before yesterday those that are empty; one that somebody reads stays for another time.
CREATE FUNCTION @.drop_empty_days() RETURNS void LANGUAGE plpgsql AS $$ DECLARE
  name TEXT;
  holds BOOLEAN;
  before TEXT := current_setting('lock_timeout');
BEGIN
  FOR name IN SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid=i.inhrelid
    WHERE i.inhparent='@.verdicts'::regclass ORDER BY c.relname LIMIT 8
  LOOP
    EXIT WHEN name >= 'verdicts_' || to_char(timezone('UTC', now()) - INTERVAL '1 day', 'YYYYMMDD');
    EXECUTE format('SELECT EXISTS(SELECT 1 FROM @.%I)', name) INTO holds;
    CONTINUE WHEN holds;
    BEGIN
      PERFORM set_config('lock_timeout', '50ms', TRUE);
      EXECUTE format('DROP TABLE @.%I', name);
      PERFORM set_config('lock_timeout', before, TRUE);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN RETURN;
    END;
  END LOOP;
END $$;
)sql";

// Steps by their trace ids. Verdicts of before have theirs in `summary`: tag and length of Verdict.trace_id, then 32
// digits.
constexpr char kVersion2[] = R"sql(
ALTER TABLE @.verdicts ADD COLUMN trace_id TEXT COLLATE "C";
UPDATE @.verdicts
  SET trace_id=encode(substring(summary FROM position('\xa20220'::bytea IN summary) + 3 FOR 32), 'escape')
  WHERE position('\xa20220'::bytea IN summary)>0;
UPDATE @.verdicts SET trace_id=NULL WHERE trace_id !~ '^[0-9a-f]{32}$';
CREATE INDEX verdicts_by_trace_id ON @.verdicts(trace_id) WHERE trace_id IS NOT NULL;
ALTER TABLE @.errors ADD COLUMN trace_id TEXT COLLATE "C" NOT NULL DEFAULT '';
)sql";

// Which history this is, so that a daemon knows one that was made anew; and who ships to it.
constexpr char kVersion3[] = R"sql(
ALTER TABLE @.history ADD COLUMN id UUID NOT NULL DEFAULT gen_random_uuid();
CREATE TABLE @.nodes(
  node TEXT COLLATE "C" PRIMARY KEY, host TEXT NOT NULL, instance TEXT NOT NULL, daemon_version TEXT NOT NULL,
  first_seen_us BIGINT NOT NULL, last_seen_us BIGINT NOT NULL) WITH (fillfactor=50);
)sql";

// Which daemon wrote a row, as its session says (rows of before name none), and how far each has shipped its verdicts.
constexpr char kVersion4[] = R"sql(
ALTER TABLE @.verdicts ADD COLUMN node TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE @.runs ADD COLUMN node TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE @.errors ADD COLUMN node TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE @.verdicts ALTER COLUMN node SET DEFAULT coalesce(current_setting('plumbline.node', true), '');
ALTER TABLE @.runs ALTER COLUMN node SET DEFAULT coalesce(current_setting('plumbline.node', true), '');
ALTER TABLE @.errors ALTER COLUMN node SET DEFAULT coalesce(current_setting('plumbline.node', true), '');
ALTER TABLE @.nodes ADD COLUMN shipped BIGINT NOT NULL DEFAULT 0;
)sql";

// How far the tables have come, beside `version`, which says how far a daemon must have come to write to them.
constexpr char kVersion5[] = R"sql(
ALTER TABLE @.history ADD COLUMN reached INTEGER NOT NULL DEFAULT 0;
)sql";

// Golden runs of all nodes, under the name that each has in its project.
constexpr char kVersion6[] = R"sql(
CREATE TABLE @.golden_runs(
  project TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  profile TEXT NOT NULL, owner TEXT COLLATE "C" NOT NULL, node TEXT COLLATE "C" NOT NULL, time_us BIGINT NOT NULL,
  PRIMARY KEY(project, name));
CREATE TABLE @.golden_steps(
  project TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, rank INTEGER NOT NULL, step BIGINT NOT NULL,
  message BYTEA NOT NULL,
  PRIMARY KEY(project, name, rank, step),
  FOREIGN KEY(project, name) REFERENCES @.golden_runs ON DELETE CASCADE);
)sql";

// Steps whose ranks stream to several daemons, until they have one verdict (node_steps.h).
constexpr char kVersion7[] = R"sql(
CREATE TABLE @.node_steps(
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  step BIGINT NOT NULL, ranks_of_run INTEGER NOT NULL, first_us BIGINT NOT NULL, ready_us BIGINT,
  closed BOOLEAN NOT NULL DEFAULT FALSE, judge TEXT COLLATE "C" NOT NULL DEFAULT '',
  judged_until_us BIGINT NOT NULL DEFAULT 0, fault TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(project, job, run, step)) WITH (fillfactor=50);
CREATE TABLE @.node_parts(
  project TEXT COLLATE "C" NOT NULL, job TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL,
  step BIGINT NOT NULL, rank INTEGER NOT NULL, ranks INTEGER[] NOT NULL, node TEXT COLLATE "C" NOT NULL,
  owner TEXT COLLATE "C" NOT NULL, digest TEXT COLLATE "C" NOT NULL, part BYTEA NOT NULL,
  PRIMARY KEY(project, job, run, step, rank),
  FOREIGN KEY(project, job, run, step) REFERENCES @.node_steps ON DELETE CASCADE);
CREATE INDEX node_parts_by_node ON @.node_parts(node);
)sql";

// What golden runs have, of reference runs, for runs that are paired with them at other nodes; the name is that of
// pair_watch.h.
constexpr char kVersion8[] = R"sql(
CREATE TABLE @.pair_runs(LIKE @.golden_runs INCLUDING ALL);
CREATE TABLE @.pair_steps(LIKE @.golden_steps INCLUDING ALL,
  FOREIGN KEY(project, name) REFERENCES @.pair_runs ON DELETE CASCADE);
)sql";

struct Migration {
  const char* sql;
  // Daemons of the version before go on beside the new tables: it adds what they neither read nor have to write.
  bool adds_only;
};
constexpr Migration kVersions[] = {{kVersion1, false}, {kVersion2, false}, {kVersion3, false}, {kVersion4, false},
                                   {kVersion5, true},  {kVersion6, true},  {kVersion7, true},  {kVersion8, true}};
static_assert(std::size(kVersions) == kPostgresVersion);
constexpr std::int64_t kReachedSince = 5;

// `needed` is what a daemon must know of to write here, `reached` what was done to the tables; 0: there are none.
struct Versions {
  std::int64_t needed = 0, reached = 0;
};

absl::Status another_application(const PostgresConnection& connection) {
  return absl::FailedPreconditionError(absl::StrCat(connection.name(), ": the schema \"", connection.settings().schema,
                                                    "\" is of another application; choose another schema or database"));
}

absl::Status newer(const PostgresConnection& connection, std::int64_t version) {
  return absl::FailedPreconditionError(
      absl::StrCat(connection.name(), ": the schema \"", connection.settings().schema, "\" has format version ",
                   version, ", written by a newer plumblined; this one reads up to version ", kPostgresVersion,
                   "; start the newer one or choose another schema or database"));
}

// Of a history that is there. Before version 5 it says one number.
absl::StatusOr<Versions> versions(const PostgresConnection& connection, const std::string& history) {
  const auto needed = connection.integer(absl::StrCat("SELECT CAST(version AS BIGINT) FROM ", history));
  if (!needed.ok()) return needed.status();
  const auto reached = connection.integer(
      absl::StrCat("SELECT coalesce(CAST(to_jsonb(h)->>'reached' AS BIGINT), version) FROM ", history, " AS h"));
  if (!reached.ok()) return reached.status();
  if (*needed > kPostgresVersion) return newer(connection, *needed);
  return Versions{*needed, *reached};
}

// What is there. Refuses what is not ours. Writes nothing.
absl::StatusOr<Versions> look(const PostgresConnection& connection) {
  const std::string name = connection.literal(connection.settings().schema);
  const auto relations = connection.integer(absl::StrCat(
      "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid=c.relnamespace WHERE n.nspname=", name));
  if (!relations.ok()) return relations.status();
  if (*relations == 0) return Versions{};
  const auto columns = connection.integer(absl::StrCat(
      "SELECT count(*) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid=a.attrelid JOIN pg_namespace AS n ON "
      "n.oid=c.relnamespace WHERE c.relname='history' AND a.attname IN ('product', 'version', 'last_sequence') AND "
      "n.nspname=",
      name));
  if (!columns.ok()) return columns.status();
  if (*columns != 3) return another_application(connection);
  // By its whole name: who may not look into the schema is told so.
  const std::string history = absl::StrCat(connection.identifier(connection.settings().schema), ".history");
  const auto product = connection.text(absl::StrCat("SELECT CAST(product AS TEXT) FROM ", history));
  if (!product.ok()) return product.status();
  if (*product != "plumbline") return another_application(connection);
  return versions(connection, history);
}

// To the version after `reached`, with the note of it.
std::string migration(std::int64_t reached, const std::string& schema) {
  const Migration& next = kVersions[reached];
  std::string sql = absl::StrReplaceAll(next.sql, {{"@", schema}});
  if (!next.adds_only) absl::StrAppend(&sql, "UPDATE ", schema, ".history SET version=", reached + 1, ";");
  if (reached + 1 >= kReachedSince) absl::StrAppend(&sql, "UPDATE ", schema, ".history SET reached=", reached + 1);
  return sql;
}

}  // namespace

absl::Status upgrade_postgres(const PostgresConnection& connection) {
  auto found = look(connection);
  const std::string schema = connection.identifier(connection.settings().schema);
  while (found.ok() && found->reached < kPostgresVersion) {
    if (auto begun = connection.begin_write(); !begun.ok()) return begun;
    found = look(connection);  // Another daemon may have been first.
    absl::Status changed = found.status();
    if (found.ok() && found->reached < kPostgresVersion) changed = connection.run(migration(found->reached, schema));
    if (changed.ok()) changed = connection.commit();
    if (!changed.ok()) {
      connection.roll_back().IgnoreError();
      return absl::Status(changed.code(),
                          absl::StrCat("the schema \"", connection.settings().schema,
                                       "\" cannot be brought to version ", kPostgresVersion, ": ", changed.message()));
    }
    found = look(connection);
  }
  return found.status();
}

absl::Status check_postgres_version(const PostgresConnection& connection) {
  const auto found = versions(connection, "history");
  if (!found.ok()) return found.status();
  if (found->reached < kPostgresVersion) {
    return absl::UnavailableError(absl::StrCat(connection.name(), ": the schema \"", connection.settings().schema,
                                               "\" was put back to format version ", found->reached,
                                               " under a daemon of version ", kPostgresVersion));
  }
  return absl::OkStatus();
}

}  // namespace plumbline
