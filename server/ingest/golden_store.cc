#include "server/ingest/golden_store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/ingest/disk.h"
#include "server/ingest/limits.h"

namespace plumbline {
namespace {

namespace fs = std::filesystem;
using absl::StrCat;

constexpr char kMagic[] = "PLGOLDN2";
constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kVersionAt = 7;
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::uint32_t kRecordBytesMax = 1u << 30;
constexpr std::size_t kStepsNamedMax = 8;
constexpr char kGolden[] = ".golden", kShipped[] = ".shipped";

struct File {
  int descriptor = -1;
  File(const std::string& path, int flags) : descriptor(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::uint64_t bytes() const {
    struct stat status = {};
    return fstat(descriptor, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  }
};

bool read_at(const File& file, std::uint64_t at, void* out, std::size_t bytes) {
  return pread(file.descriptor, out, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
}

std::string sealed(const v1::GoldenRecord& record) {
  const std::string message = record.SerializeAsString();
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>(message.size() >> (8 * i) & 0xff);
  bytes += message;
  XXH64_canonical_t sum;
  XXH64_canonicalFromHash(&sum, XXH3_64bits(message.data(), message.size()));
  bytes.append(reinterpret_cast<const char*>(sum.digest), kChecksumBytes);
  return bytes;
}

enum class Read { kWhole, kTorn, kDamaged };

// The record at `at`; `next` is where the one after it begins. Torn: the file ends within it.
Read read_record(const File& file, std::uint64_t end, std::uint64_t at, v1::GoldenRecord* record, std::uint64_t* next) {
  unsigned char length_bytes[kLengthBytes];
  if (end - at < kLengthBytes) return Read::kTorn;
  if (!read_at(file, at, length_bytes, kLengthBytes)) return Read::kDamaged;
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::uint32_t{length_bytes[i]} << (8 * i);
  if (length == 0 || length > kRecordBytesMax) return Read::kDamaged;
  *next = at + kLengthBytes + length + kChecksumBytes;
  if (*next > end) return Read::kTorn;
  std::string message(length, '\0');
  unsigned char stored[kChecksumBytes];
  if (!read_at(file, at + kLengthBytes, message.data(), length) ||
      !read_at(file, at + kLengthBytes + length, stored, kChecksumBytes)) {
    return Read::kDamaged;
  }
  XXH64_canonical_t sum;
  XXH64_canonicalFromHash(&sum, XXH3_64bits(message.data(), message.size()));
  if (memcmp(stored, sum.digest, kChecksumBytes) != 0 || !record->ParseFromString(message)) return Read::kDamaged;
  return Read::kWhole;
}

absl::Status disk_error(const std::string& doing, const std::string& path) {
  const int error = errno;
  const std::string text = StrCat("cannot ", doing, " ", path, ": ", strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

absl::Status write_at(const File& file, std::uint64_t at, const std::string& bytes, const std::string& path) {
  if (ftruncate(file.descriptor, static_cast<off_t>(at)) != 0 ||
      pwrite(file.descriptor, bytes.data(), bytes.size(), static_cast<off_t>(at)) !=
          static_cast<ssize_t>(bytes.size()) ||
      fdatasync(file.descriptor) != 0) {
    return disk_error("write to", path);
  }
  return absl::OkStatus();
}

bool legal_name(const std::string& name) {
  return !name.empty() && name.size() <= limits::kIdentityBytesMax && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == ':' || c == '-';
  });
}

absl::Status check_names(const std::string& project, const std::string& name) {
  if (legal_name(project) && legal_name(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("golden: expected 1 to ", limits::kIdentityBytesMax,
                                           " characters of [A-Za-z0-9._:-], found \"",
                                           (legal_name(project) ? name : project).substr(0, 200), "\""));
}

std::string sealed_owner(const std::string& owner) {
  v1::GoldenRecord record;
  record.set_owner(owner);
  return sealed(record);
}

std::string called(const std::string& name) { return StrCat("golden run '", name, "'"); }

}  // namespace

std::string GoldenStore::path(const std::string& project, const std::string& name) const {
  return (fs::path(directory_) / StrCat("p_", project) / StrCat("g_", name, kGolden)).string();
}

absl::StatusOr<GoldenStore::Golden> GoldenStore::scan(const std::string& path, const std::string& what, bool exported) {
  const File file(path, O_RDONLY);
  if (file.descriptor < 0) return disk_error("open", path);
  const std::uint64_t end = file.bytes();
  const auto damaged = [&](const std::string& why) { return absl::DataLossError(StrCat(what, " is damaged: ", why)); };
  char magic[kMagicBytes] = {};
  if (end < kMagicBytes || !read_at(file, 0, magic, kMagicBytes) || memcmp(magic, kMagic, kVersionAt) != 0) {
    if (!exported) return damaged("it does not begin as one");
    return absl::InvalidArgumentError("expected a golden run that `plumb golden export` wrote, found something else");
  }
  if (magic[kVersionAt] != kMagic[kVersionAt]) {
    return absl::FailedPreconditionError(
        StrCat(what, " is of version ", std::string(1, magic[kVersionAt]), "; this daemon reads version 2"));
  }
  Golden golden;
  std::optional<std::uint64_t> ended;  // The steps that its last record counts.
  std::uint64_t steps = 0;
  for (std::uint64_t at = kMagicBytes, next = 0; at < end; at = next) {
    v1::GoldenRecord record;
    const Read read = read_record(file, end, at, &record, &next);
    if (read == Read::kTorn && !exported && at > kMagicBytes) break;
    if (read == Read::kTorn) return damaged("it is cut short");
    if (read == Read::kDamaged || ended) return damaged(StrCat("at byte ", at));
    if (record.has_header() != (at == kMagicBytes)) return damaged(StrCat("at byte ", at));
    if (record.has_header()) golden.header = record.header();
    if (record.has_step()) {
      if (auto wrong = check_golden_step(from_proto(record.step()))) {
        return damaged(StrCat("at byte ", at, ": ", wrong.message()));
      }
      golden.offsets[{record.step().rank(), record.step().step()}] = at;
      ++steps;
    }
    if (record.record_case() == v1::GoldenRecord::kOwner) golden.owner = record.owner();
    if (record.has_end()) ended = record.end().steps();
    if (!record.has_end()) golden.end = next;
  }
  if (golden.end == 0 || (exported && ended != steps)) return damaged("it is cut short");
  return golden;
}

absl::StatusOr<GoldenStore::Golden*> GoldenStore::find(const std::string& project, const std::string& name) {
  if (auto checked = check_names(project, name); !checked.ok()) return checked;
  const std::string file = path(project, name);
  if (const auto known = known_.find(file); known != known_.end()) return &known->second;
  std::error_code error;
  if (!fs::exists(file, error)) {
    return absl::NotFoundError(StrCat("there is no ", called(name), " in project ", project));
  }
  auto golden = scan(file, called(name), false);
  if (!golden.ok()) return golden.status();
  return &(known_[file] = *std::move(golden));
}

absl::Status GoldenStore::begin(const v1::GoldenHeader& header, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = find(header.project(), header.name());
  if (found.ok()) {
    if ((*found)->header.run() == header.run() && (*found)->owner == owner) return absl::OkStatus();
    return absl::AlreadyExistsError(StrCat(called(header.name()), " was recorded by run ", (*found)->header.run(),
                                           ": choose another name, or remove it (plumb golden remove)"));
  }
  if (!absl::IsNotFound(found.status())) return found.status();
  const std::string file = path(header.project(), header.name());
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  v1::GoldenRecord record;
  *record.mutable_header() = header;
  const std::string bytes = std::string(kMagic, kMagicBytes) + sealed(record) + sealed_owner(owner);
  const File created(file + ".part", O_RDWR | O_CREAT | O_TRUNC);
  if (created.descriptor < 0) return disk_error("create", file);
  if (auto written = write_at(created, 0, bytes, file); !written.ok()) return written;
  fs::rename(file + ".part", file, error);
  if (error) return absl::UnavailableError(StrCat("cannot create ", file, ": ", error.message()));
  if (auto synced = sync_directories(fs::path(file).parent_path().string(), directory_); !synced.ok()) return synced;
  known_[file] = {header, owner, {}, bytes.size()};
  ++changes_;
  return absl::OkStatus();
}

absl::Status GoldenStore::append(const std::string& project, const std::string& name, const GoldenStep& step) {
  const std::lock_guard lock(mutex_);
  const auto golden = find(project, name);
  if (!golden.ok()) return golden.status();
  v1::GoldenRecord record;
  *record.mutable_step() = to_proto(step);
  const std::string bytes = sealed(record), file = path(project, name);
  if (auto room = check_reserve(directory_, bytes.size(), reserve_); !room.ok()) return room;
  const File grown(file, O_RDWR);
  if (grown.descriptor < 0) return disk_error("open", file);
  if (auto written = write_at(grown, (*golden)->end, bytes, file); !written.ok()) return written;
  (*golden)->offsets[{step.rank, step.step}] = (*golden)->end;
  (*golden)->end += bytes.size();
  ++changes_;
  return absl::OkStatus();
}

absl::StatusOr<std::string> GoldenStore::owner_of(const std::string& project, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto golden = find(project, name);
  if (!golden.ok()) return golden.status();
  return (*golden)->owner;
}

absl::StatusOr<std::string> GoldenStore::run_of(const std::string& project, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto golden = find(project, name);
  if (!golden.ok()) return golden.status();
  return (*golden)->header.run();
}

absl::StatusOr<std::shared_ptr<const GoldenStep>> GoldenStore::load(const std::string& project, const std::string& name,
                                                                    std::int32_t rank, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  const auto golden = find(project, name);
  if (!golden.ok()) return golden.status();
  const auto found = (*golden)->offsets.find({rank, step});
  if (found == (*golden)->offsets.end()) {
    std::vector<std::int64_t> steps;
    std::size_t more = 0;
    for (const auto& [key, offset] : (*golden)->offsets) {
      if (key.first == rank && steps.size() < kStepsNamedMax) {
        steps.push_back(key.second);
      } else if (key.first == rank) {
        ++more;
      }
    }
    return absl::NotFoundError(StrCat("step ", step, " is not in ", called(name), ", which holds ",
                                      steps.empty() ? "none" : StrCat("steps ", absl::StrJoin(steps, ", ")),
                                      more > 0 ? StrCat(" and ", more, " more") : "", " of rank ", rank));
  }
  const File file(path(project, name), O_RDONLY);
  v1::GoldenRecord record;
  std::uint64_t next = 0;
  if (file.descriptor < 0 || read_record(file, (*golden)->end, found->second, &record, &next) != Read::kWhole ||
      !record.has_step()) {
    return absl::DataLossError(StrCat(called(name), " is damaged: at byte ", found->second));
  }
  GoldenStep found_step = from_proto(record.step());
  if (auto wrong = check_golden_step(found_step)) {
    return absl::DataLossError(StrCat(called(name), " is damaged: at byte ", found->second, ": ", wrong.message()));
  }
  return std::make_shared<const GoldenStep>(std::move(found_step));
}

v1::GoldenSummary GoldenStore::summary_of(const Golden& golden) {
  v1::GoldenSummary summary;
  *summary.mutable_header() = golden.header;
  summary.set_owner(golden.owner);
  summary.set_steps(golden.offsets.size());
  summary.set_bytes(golden.end);
  for (const auto& [key, offset] : golden.offsets) {
    const bool first = offset == golden.offsets.begin()->second;
    summary.set_step_first(first ? key.second : std::min(summary.step_first(), key.second));
    summary.set_step_last(std::max(summary.step_last(), key.second));
  }
  return summary;
}

std::vector<GoldenStore::Name> GoldenStore::names(bool shipped) const {
  std::set<Name> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    const std::string parent = it->path().parent_path().filename().string(), stem = it->path().stem().string();
    const std::string extension = it->path().extension().string();
    if (extension != kGolden && !(shipped && extension == kShipped)) continue;
    if (parent.rfind("p_", 0) != 0 || stem.rfind("g_", 0) != 0) continue;
    names.insert({parent.substr(2), stem.substr(2)});
  }
  return {names.begin(), names.end()};
}

std::string GoldenStore::shipped_path(const Name& of) const {
  return fs::path(path(of.project, of.name)).replace_extension(kShipped).string();
}

std::vector<v1::GoldenSummary> GoldenStore::list(const std::string& project) {
  const std::lock_guard lock(mutex_);
  std::vector<v1::GoldenSummary> all;
  for (const Name& name : names()) {
    if (!project.empty() && name.project != project) continue;
    v1::GoldenSummary summary;
    const auto golden = find(name.project, name.name);
    if (golden.ok()) {
      summary = summary_of(**golden);
    } else {
      summary.set_error(std::string(golden.status().message()));
    }
    summary.mutable_header()->set_project(name.project);  // An imported file keeps the header of its export.
    summary.mutable_header()->set_name(name.name);
    all.push_back(std::move(summary));
  }
  return all;
}

absl::StatusOr<GoldenStore::Stretch> GoldenStore::read(const Name& of, std::uint64_t from, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto golden = find(of.project, of.name);
  if (!golden.ok()) return golden.status();
  const std::uint64_t begin = std::max<std::uint64_t>(from, kMagicBytes), end = (*golden)->end;
  Stretch stretch{(*golden)->header, (*golden)->owner, {}, begin};
  stretch.header.set_project(of.project);
  stretch.header.set_name(of.name);
  const File file(path(of.project, of.name), O_RDONLY);
  for (std::uint64_t next = 0; stretch.through < end && stretch.through - begin < bytes; stretch.through = next) {
    v1::GoldenRecord record;
    if (file.descriptor < 0 || read_record(file, end, stretch.through, &record, &next) != Read::kWhole) {
      return absl::DataLossError(StrCat(called(of.name), " is damaged: at byte ", stretch.through));
    }
    if (record.has_step()) stretch.steps.push_back(std::move(*record.mutable_step()));
  }
  return stretch;
}

absl::Status GoldenStore::export_to(const std::string& project, const std::string& name, const Sink& sink) {
  std::uint64_t end = 0;
  v1::GoldenRecord last;
  {
    const std::lock_guard lock(mutex_);
    const auto golden = find(project, name);
    if (!golden.ok()) return golden.status();
    known_.erase(path(project, name));  // Read anew: a file that was damaged since is not handed on.
    const auto again = find(project, name);
    if (!again.ok()) return again.status();
    end = (*again)->end;
  }
  const File file(path(project, name), O_RDONLY);
  if (file.descriptor < 0) return disk_error("open", path(project, name));
  std::uint64_t steps = 0;
  std::string bytes;
  for (std::uint64_t at = 0; at < end; at += bytes.size()) {
    bytes.resize(std::min<std::uint64_t>(limits::kChunkBytesMax, end - at));
    if (!read_at(file, at, bytes.data(), bytes.size())) return disk_error("read", path(project, name));
    if (!sink(bytes)) return absl::OkStatus();
  }
  for (std::uint64_t at = kMagicBytes, next = 0; at < end; at = next) {
    v1::GoldenRecord record;
    if (read_record(file, end, at, &record, &next) != Read::kWhole) {
      return absl::DataLossError(StrCat(called(name), " is damaged: at byte ", at));
    }
    steps += record.has_step() ? 1 : 0;
  }
  last.mutable_end()->set_steps(steps);
  sink(sealed(last));
  return absl::OkStatus();
}

absl::StatusOr<v1::GoldenSummary> GoldenStore::import(const std::string& file, const std::string& project,
                                                      const std::string& name, const std::string& owner,
                                                      const std::function<absl::Status(const std::string&)>& may) {
  // Read and copied without the lock, under a name of its own: steps are judged and recorded meanwhile.
  auto golden = scan(file, "the file", true);
  if (!golden.ok()) return golden.status();
  const std::string into = project.empty() ? golden->header.project() : project;
  const std::string taken = name.empty() ? golden->header.name() : name;
  if (auto checked = check_names(into, taken); !checked.ok()) return checked;
  if (auto allowed = may(into); !allowed.ok()) return allowed;
  const std::string target = path(into, taken), folder = fs::path(target).parent_path().string();
  std::error_code error;
  fs::create_directories(folder, error);
  if (auto room = check_reserve(directory_, golden->end, reserve_); !room.ok()) return room;
  const std::string copy = StrCat(target, ".", ++imports_, ".part");
  fs::copy_file(file, copy, fs::copy_options::overwrite_existing, error);
  absl::Status written =
      error ? absl::UnavailableError(StrCat("cannot write ", target, ": ", error.message())) : absl::OkStatus();
  if (written.ok()) {
    const File part(copy, O_RDWR);  // Without the last record, which counts.
    written =
        part.descriptor < 0 ? disk_error("open", target) : write_at(part, golden->end, sealed_owner(owner), target);
  }
  if (written.ok()) {
    const std::lock_guard lock(mutex_);
    if (fs::exists(target, error)) {
      written = absl::AlreadyExistsError(
          StrCat("there is a ", called(taken), " in project ", into, ": name another one, or remove it"));
    } else {
      fs::rename(copy, target, error);
      if (error) written = absl::UnavailableError(StrCat("cannot write ", target, ": ", error.message()));
    }
  }
  if (written.ok()) written = sync_directories(folder, directory_);
  if (!written.ok()) {
    fs::remove(copy, error);
    return written;
  }
  ++changes_;
  golden->owner = owner;
  v1::GoldenSummary summary = summary_of(*golden);
  summary.mutable_header()->set_project(into);
  summary.mutable_header()->set_name(taken);
  return summary;
}

std::size_t GoldenStore::expire(std::chrono::system_clock::time_point time, std::int64_t count, std::uint64_t bytes,
                                bool everywhere) {
  struct Kept {
    fs::path path;
    std::uint64_t bytes;
  };
  std::multimap<std::chrono::system_clock::time_point, Kept> kept;  // Oldest first.
  std::uint64_t total = 0;
  const std::lock_guard lock(mutex_);
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;  // A file that vanished meanwhile.
    if (it->path().extension() != ".golden") continue;
    const auto written = std::chrono::file_clock::to_sys(it->last_write_time(ignored));
    total += kept.emplace(written, Kept{it->path(), it->file_size(ignored)})->second.bytes;
  }
  std::size_t removed = 0;
  while (!kept.empty()) {
    const auto& [written, oldest] = *kept.begin();
    const bool many = count > 0 && kept.size() > static_cast<std::size_t>(count);
    if (written >= time && !many && (bytes == 0 || total <= bytes)) break;
    total -= oldest.bytes;
    known_.erase(oldest.path.string());
    fs::remove(oldest.path, error);
    if (!everywhere) fs::remove(fs::path(oldest.path).replace_extension(kShipped), error);
    ++changes_;
    kept.erase(kept.begin());
    ++removed;
  }
  return removed;
}

void GoldenStore::remove_job(const std::string& project, const std::string& job) {
  for (const Name& name : names()) {
    if (name.project != project) continue;
    const auto run = run_of(name.project, name.name);
    if (run.ok() && run->starts_with(StrCat(job, "/"))) remove(name.project, name.name).IgnoreError();
  }
}

absl::Status GoldenStore::remove(const std::string& project, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (auto checked = check_names(project, name); !checked.ok()) return checked;
  const std::string file = path(project, name);
  known_.erase(file);
  std::error_code error;
  if (fs::remove(file, error)) {
    ++changes_;
    return absl::OkStatus();
  }
  return absl::NotFoundError(StrCat("there is no ", called(name), " in project ", project));
}

}  // namespace plumbline
