#include "server/serve/sharing.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/log/log.h"
#include "server/work/nodes_verdict.h"

namespace plumbline {

using absl::StrCat;

namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, HOST_NAME_MAX) == 0 ? name : "";
}

const char* name_of(ShipTrouble trouble) { return kShipTroubleNames[static_cast<std::size_t>(trouble)]; }

// How many records are to be sent, for the log.
template <typename Source>
std::string waiting(const Source& source) {
  const auto backlog = source.backlog();
  return StrCat(backlog.ok() ? backlog->records : 0);
}

// Seconds since the oldest of what is to be sent was written.
double age_of(const Backlog& backlog) {
  const absl::Duration age = absl::Now() - absl::FromUnixMicros(backlog.oldest_us);
  return backlog.records > 0 ? std::max(0.0, absl::ToDoubleSeconds(age)) : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sharing>> Sharing::begin(const DaemonOptions& options, SqlStore* store,
                                                        Recorded recorded, Metrics* metrics) {
  std::unique_ptr<Sharing> sharing(new Sharing());
  if (auto shared = sharing->share(options, store, recorded, metrics); !shared.ok()) return shared;
  if (auto published = sharing->publish(options, store); !published.ok()) return published;
  return sharing;
}

std::function<void(NodePartRow)> Sharing::tell_nodes() const {
  if (outbox_ == nullptr) return {};
  return [outbox = outbox_.get()](NodePartRow part) { outbox->put(std::move(part)); };
}

void Sharing::show(Metrics* metrics) const {
  show_history(metrics);
  show_publication(metrics);
}

void Sharing::finish(absl::Duration limit) {
  if (history_ != nullptr) history_->finish(limit);
  if (publication_ != nullptr) publication_->finish(limit);
}

absl::Status Sharing::share(const DaemonOptions& options, SqlStore* store, Recorded recorded, Metrics* metrics) {
  if (options.store.empty()) return Outbox::close(store);
  auto opened = Outbox::open(options.data_dir, store);
  if (!opened.ok()) return opened.status();
  outbox_ = *std::move(opened);
  golden_outbox_ = std::make_unique<GoldenOutbox>(recorded.golden);
  pairs_outbox_ = std::make_unique<GoldenOutbox>(recorded.pairs);
  SharedHistory::Options sharing{.url = options.store,
                                 .host = host_name(),
                                 .version = options.version,
                                 .same_users = options.store_users_are_shared};
  sharing.lost = [this](ShipTrouble trouble, const std::string& why) {
    log_event(LogLevel::kError, "history_lost",
              {{"reason", name_of(trouble)},
               {"backlog", waiting(*outbox_)},
               {"message", StrCat(why, "; records stay here until they can be shipped")}});
  };
  sharing.back = [this] {
    log_event(LogLevel::kInfo, "history_shared", {{"node", outbox_->node()}, {"backlog", waiting(*outbox_)}});
  };
  sharing.turned_away = [](const std::string& what) {
    log_event(LogLevel::kWarning, "history_turned_away", {{"message", what}});
  };
  sharing.golden = golden_outbox_.get();
  sharing.pairs = pairs_outbox_.get();
  sharing.retention = options.store_keep;
  sharing.untidy = [](const std::string& why) {
    log_event(LogLevel::kError, "retention_trouble", {{"message", StrCat("--store-retention: ", why)}});
  };
  sharing.nodes_timeout = options.nodes_timeout;
  sharing.judge_nodes = [store, metrics, timeout = options.nodes_timeout](const NodeStep& step) {
    return judge_nodes(step, timeout, store, metrics);
  };
  sharing.unjudged = [](const std::string& why) { log_event(LogLevel::kError, "nodes_unjudged", {{"message", why}}); };
  auto begun = open_shared_history(std::move(sharing), store, outbox_.get());
  if (!begun.ok()) return absl::Status(begun.status().code(), StrCat("--store: ", begun.status().message()));
  history_ = *std::move(begun);
  return absl::OkStatus();
}

void Sharing::show_history(Metrics* metrics) const {
  if (history_ == nullptr) return;
  const ShipState is = history_->state();
  const auto backlog = outbox_->backlog();
  Metrics::SharedHistory shown;
  shown.up = is.up;
  shown.shipped = is.shipped;
  shown.turned_away = is.turned_away;
  if (backlog.ok()) {
    shown.backlog_records = backlog->records;
    shown.backlog_seconds = age_of(*backlog);
  }
  for (std::size_t i = 0; i < kShipTroubles; ++i) shown.errors.emplace_back(kShipTroubleNames[i], is.errors[i]);
  metrics->set_shared_history(shown);
}

absl::Status Sharing::publish(const DaemonOptions& options, SqlStore* store) {
  if (options.publish.address.empty()) return PublishCursor::close(store);
  auto opened = PublishCursor::open(options.data_dir, store);
  if (!opened.ok()) return opened.status();
  cursor_ = *std::move(opened);
  Publication::Options publishing;
  publishing.server = options.publish;
  publishing.host = host_name();
  publishing.server.name = StrCat("plumblined ", publishing.host, "/", cursor_->node());
  publishing.lost = [this](ShipTrouble trouble, const std::string& why) {
    log_event(LogLevel::kError, "stream_lost",
              {{"reason", name_of(trouble)},
               {"backlog", waiting(*cursor_)},
               {"message", StrCat(why, "; verdicts stay here until they can be published")}});
  };
  publishing.back = [this] {
    log_event(LogLevel::kInfo, "stream_published", {{"node", cursor_->node()}, {"backlog", waiting(*cursor_)}});
  };
  publishing.replayed = [](const std::string& why) {
    log_event(LogLevel::kWarning, "stream_replayed", {{"message", why}});
  };
  publishing.turned_away = [](const std::string& what) {
    log_event(LogLevel::kWarning, "stream_turned_away", {{"message", what}});
  };
  auto begun = open_publication(std::move(publishing), store, cursor_.get());
  if (!begun.ok()) return absl::Status(begun.status().code(), StrCat("--publish: ", begun.status().message()));
  publication_ = *std::move(begun);
  return absl::OkStatus();
}

void Sharing::show_publication(Metrics* metrics) const {
  if (publication_ == nullptr) return;
  const PublishState is = publication_->state();
  const auto backlog = cursor_->backlog();
  Metrics::Publication shown;
  shown.up = is.up;
  shown.published = is.published;
  shown.replays = is.replays;
  shown.turned_away = is.turned_away;
  if (backlog.ok()) {
    shown.backlog_verdicts = backlog->records;
    shown.backlog_seconds = age_of(*backlog);
  }
  for (std::size_t i = 0; i < kShipTroubles; ++i) shown.errors.emplace_back(kShipTroubleNames[i], is.errors[i]);
  metrics->set_publication(shown);
}

}  // namespace plumbline
