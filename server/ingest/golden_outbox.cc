#include "server/ingest/golden_outbox.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/ingest/disk.h"

namespace plumbline {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kLineBytesMax = 4096;

// As a file that a crash cannot leave half written.
absl::Status replace(const std::string& path, const std::string& line) {
  std::error_code error;
  {
    std::ofstream file(path + ".part", std::ios::binary | std::ios::trunc);
    file << line;
    if (!file.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  }
  fs::rename(path + ".part", path, error);
  return error ? absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", error.message())) : absl::OkStatus();
}

std::int64_t began_us(const v1::GoldenHeader& header) {
  return header.time().seconds() * 1'000'000 + header.time().nanos() / 1000;
}

// One line, whatever an imported file has as its run.
std::string plain(std::string text) {
  for (char& c : text) c = static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  return text;
}

}  // namespace

std::optional<GoldenOutbox::Cursor> GoldenOutbox::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line(kLineBytesMax, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits('\t', 4));
  Cursor cursor;
  if (parts.size() != 5 || !absl::SimpleAtoi(parts[1], &cursor.through) ||
      !absl::SimpleAtoi(parts[2], &cursor.began_us))
    return std::nullopt;
  cursor.history = parts[0];
  cursor.run = parts[3];
  cursor.owner = parts[4];
  return cursor;
}

std::optional<GoldenOutbox::Shipment> GoldenOutbox::next_of(const GoldenStore::Name& name,
                                                            const std::string& history) const {
  auto cursor = read(store_->shipped_path(name));
  if (cursor && cursor->history != history) cursor.reset();
  const auto removed = [&] {
    Shipment removal;
    removal.header.set_project(name.project);
    removal.header.set_name(name.name);
    removal.header.set_run(cursor->run);
    removal.owner = cursor->owner;
    removal.removed = true;
    return removal;
  };
  auto stretch = store_->read(name, cursor ? cursor->through : 0, kBytesMax);
  if (absl::IsNotFound(stretch.status())) return cursor ? std::make_optional(removed()) : std::nullopt;
  if (!stretch.ok()) return std::nullopt;
  stretch->header.set_run(plain(stretch->header.run()));
  if (cursor && (stretch->header.run() != cursor->run || began_us(stretch->header) != cursor->began_us)) {
    return removed();  // Another one took its place.
  }
  if (cursor && stretch->through == cursor->through) return std::nullopt;
  return Shipment{std::move(stretch->header), plain(stretch->owner), false, std::move(stretch->steps),
                  stretch->through};
}

absl::StatusOr<std::optional<GoldenOutbox::Shipment>> GoldenOutbox::next(const std::string& history) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t changes = store_->changes();
  if (settled_ == changes && of_ == history) return std::nullopt;
  for (const GoldenStore::Name& name : store_->names(true)) {
    if (auto found = next_of(name, history)) return found;
  }
  settled_ = changes;
  of_ = history;
  return std::nullopt;
}

absl::Status GoldenOutbox::acknowledge(const std::string& history, const Shipment& shipment) {
  const std::lock_guard lock(mutex_);
  const std::string path = store_->shipped_path({shipment.header.project(), shipment.header.name()});
  if (shipment.removed) {
    std::error_code error;
    fs::remove(path, error);
    return error ? absl::UnavailableError(absl::StrCat("cannot remove ", path, ": ", error.message()))
                 : absl::OkStatus();
  }
  return replace(path, absl::StrCat(history, "\t", shipment.through, "\t", began_us(shipment.header), "\t",
                                    shipment.header.run(), "\t", shipment.owner));
}

}  // namespace plumbline
