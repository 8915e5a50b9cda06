// A daemon as far as histories go: a data directory, and what ships it to a history that it shares.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/store/shared_history.h"
#include "tests/unit/store/postgres_server.h"

namespace plumbline {

class Node {
  static std::string make_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plumbline-node-XXXXXX").string();
    return mkdtemp(pattern.data());
  }
  const std::string folder_ = make_folder();  // First: what is public uses it.

 public:
  static constexpr std::chrono::seconds kPatience{60};

  explicit Node(const std::string& schema) : schema_(schema) {}
  Node(const std::string& schema, const Node& copied) : Node(schema) {
    std::filesystem::copy(copied.folder_, folder_, std::filesystem::copy_options::recursive);
  }
  ~Node() {
    close();
    std::filesystem::remove_all(folder_);
  }

  void open_store() {
    auto opened = open_local_store(folder_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    store = *std::move(opened);
    handle_ = store->subscribe([this] { changed(); });
  }

  void open_outbox() {
    auto opened = Outbox::open(folder_, store.get());
    ASSERT_TRUE(opened.ok()) << opened.status();
    outbox = *std::move(opened);
  }

  void share() {
    SharedHistory::Options options;
    options.url = PostgresServer::shared().url();
    options.schema = schema_;
    options.host = "here";
    options.version = "1.0";
    options.same_users = same_users;
    golden_outbox = std::make_unique<GoldenOutbox>(&golden);
    options.golden = golden_outbox.get();
    options.retention = retention;
    options.judge_nodes = judge;
    options.nodes_timeout = nodes_timeout;
    options.others_judge_after = others_judge_after;
    options.judge_lease = judge_lease;
    options.tidy_every = absl::Milliseconds(20);
    options.statement_timeout = statement_timeout;
    options.retry_min = absl::Milliseconds(5);
    options.retry_max = absl::Milliseconds(100);
    options.idle_max = absl::Milliseconds(100);
    options.lost = [this](ShipTrouble trouble, const std::string& why) {
      const std::lock_guard lock(mutex_);
      troubles_.push_back(trouble);
      why_ = why;
      changed_.notify_all();
    };
    options.back = [this] { changed(); };
    auto opened = open_shared_history(options, store.get(), outbox.get());
    ASSERT_TRUE(opened.ok()) << opened.status();
    history = *std::move(opened);
    history->reader()->subscribe([this] { changed(); });
  }

  void open() {
    open_store();
    open_outbox();
    share();
  }

  void close() {
    history.reset();
    golden_outbox.reset();
    outbox.reset();
    if (store != nullptr) store->unsubscribe(handle_);
    store.reset();
  }

  // Waits until nothing is left to ship.
  bool shipped() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return outbox->backlog()->records == 0; });
  }
  // Waits until it was told that the history is lost.
  bool lost(ShipTrouble trouble) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return !troubles_.empty() && troubles_.back() == trouble; });
  }
  std::string why() {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  // Waits until the shared history is asked.
  bool answers() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return history->reader()->state().ok(); });
  }

  std::unique_ptr<SqlStore> store;
  std::unique_ptr<Outbox> outbox;
  std::unique_ptr<SharedHistory> history;
  GoldenStore golden{folder_ + "/golden"};
  std::unique_ptr<GoldenOutbox> golden_outbox;
  // Of share().
  bool same_users = false;
  Retention retention;
  absl::Duration statement_timeout = absl::Milliseconds(500);
  JudgeNodes judge;
  absl::Duration nodes_timeout = absl::Hours(1), others_judge_after = absl::Hours(1), judge_lease = absl::Hours(1);

 private:
  void changed() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  const std::string schema_;
  std::uint64_t handle_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ShipTrouble> troubles_;
  std::string why_;
};

}  // namespace plumbline
