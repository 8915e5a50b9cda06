#include "server/store/fleet_feed.h"

#include <algorithm>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/store/page_token.h"

namespace plumbline {
namespace {

std::string question(const v1::Filter& filter) { return absl::StrCat("watch ", filter.SerializeAsString()); }

}  // namespace

std::string FleetFeed::token(const v1::Filter& filter) const {
  return make_page_token(question(filter),
                         absl::StrCat(own_history_, " ", history_, " ", include_past_ ? 1 : 0, " ", own_after_, " ",
                                      past_after_, " ", past_through_, " ", others_after_));
}

absl::Status FleetFeed::resume(const v1::Filter& filter, const std::string& token) {
  const absl::Status none = absl::InvalidArgumentError(
      "resume_token: expected that of a verdict of a watch with the same filter, found another text");
  const auto place = read_page_token(question(filter), token);
  if (!place.ok()) return none;
  const std::vector<std::string> parts = absl::StrSplit(*place, ' ');
  if (parts.size() != 7) return none;
  include_past_ = parts[2] == "1";
  std::size_t at = 3;
  for (std::int64_t* const number : {&own_after_, &past_after_, &past_through_, &others_after_}) {
    if (!absl::SimpleAtoi(parts[at++], number) || *number < 0) return none;
  }
  const auto own_history = own_->queries().identity();
  if (!own_history.ok()) return own_history.status();
  const auto last = own_->queries().last_sequence();
  if (!last.ok()) return last.status();
  if (parts[0] != *own_history || own_after_ > *last) {
    return absl::AbortedError("resume_token: it is of another daemon's history; begin to watch again");
  }
  own_history_ = parts[0];
  history_ = parts[1];
  return absl::OkStatus();
}

absl::Status FleetFeed::begin(bool include_past) {
  const auto own_history = own_->queries().identity();
  if (!own_history.ok()) return own_history.status();
  own_history_ = *own_history;
  include_past_ = include_past;
  if (!include_past) {
    const auto last = own_->queries().last_sequence();
    if (!last.ok()) return last.status();
    own_after_ = *last;
  }
  if (shared_ == nullptr || !shared_->state().ok()) return absl::OkStatus();
  const auto cut = shared_->queries().cut(stop_);
  if (!cut.ok()) {
    failed(cut.status());
    return absl::OkStatus();
  }
  history_ = cut->history;
  others_after_ = cut->shared_through;
  if (include_past) {
    past_through_ = cut->shared_through;
    own_after_ = cut->own_after;
  }
  return absl::OkStatus();
}

absl::StatusOr<FleetFeed::Page> FleetFeed::next(const v1::Filter& filter, const Visibility& seen, int limit) {
  Page page;
  if (shared_ != nullptr && shared_->state().ok()) {
    const absl::Status read = next_shared(filter, seen, limit, &page);
    if (absl::IsAborted(read) || absl::IsInvalidArgument(read)) return read;
    if (!read.ok()) failed(read);
  }
  const auto last = own_->queries().last_sequence();
  if (!last.ok()) return last.status();
  const ListPlace after{own_after_};
  auto own = own_->queries().list(filter, {}, &after, limit, /*whole=*/true, seen, {});
  if (!own.ok()) return own.status();
  // Nothing up to there matched: it need not be looked at again.
  if (own->empty()) own_after_ = std::max(own_after_, *last);
  page.more = page.more || !own->empty();
  for (StoredVerdict& stored : *own) {
    own_after_ = stored.sequence;
    if (shared_ != nullptr) stored.verdict.set_node(shared_->name());
    stored.verdict.set_resume_token(token(filter));
    page.verdicts.push_back(std::move(stored.verdict));
  }
  return page;
}

void FleetFeed::failed(const absl::Status& status) const {
  if (!absl::IsCancelled(status)) shared_->failed(status);
}

absl::Status FleetFeed::next_shared(const v1::Filter& filter, const Visibility& seen, int limit, Page* page) {
  const Queries& queries = shared_->queries();
  const auto cut = queries.cut(stop_);
  if (!cut.ok()) return cut.status();
  if (history_.empty()) {
    history_ = cut->history;
    others_after_ = include_past_ ? 0 : cut->shared_through;
  }
  if (history_ != cut->history) {
    return absl::AbortedError("the shared history was made anew; begin to watch again");
  }
  const bool of_past = past_after_ < past_through_;
  std::int64_t& after = of_past ? past_after_ : others_after_;
  Visibility there = shared_->seen(seen);
  there.part.through = of_past ? past_through_ : cut->shared_through;
  if (!of_past) there.part.but_of = shared_->node();
  const ListPlace place{after};
  auto found = queries.list(filter, {}, &place, limit, /*whole=*/true, there, stop_);
  if (!found.ok()) return found.status();
  page->more = !found->empty() || of_past;
  if (found->empty()) after = std::max(after, there.part.through);
  for (StoredVerdict& stored : *found) {
    after = stored.sequence;
    if (!of_past) {  // Of a step that two daemons judged, ours is told.
      const v1::Verdict& verdict = stored.verdict;
      const auto here =
          own_->queries().holds({verdict.project(), verdict.job(), verdict.run(), verdict.rank(), verdict.step()}, {});
      if (here.ok() && *here) continue;
    }
    stored.verdict.set_resume_token(token(filter));
    page->verdicts.push_back(std::move(stored.verdict));
  }
  return absl::OkStatus();
}

std::string FleetFeed::scope() const {
  if (shared_ == nullptr) return "own";
  const absl::Status state = shared_->state();
  std::string text = state.ok() ? "fleet" : absl::StrCat("own: ", state.message());
  const auto plain = [](char c) { return c >= ' ' && c <= '~'; };
  std::replace_if(text.begin(), text.end(), std::not_fn(plain), '?');
  return text;
}

std::pair<std::uint64_t, std::uint64_t> FleetFeed::subscribe(const std::function<void()>& listener) {
  return {own_->subscribe(listener), shared_ == nullptr ? 0 : shared_->subscribe(listener)};
}

void FleetFeed::unsubscribe(std::pair<std::uint64_t, std::uint64_t> handles) {
  own_->unsubscribe(handles.first);
  if (shared_ != nullptr) shared_->unsubscribe(handles.second);
}

}  // namespace plumbline
