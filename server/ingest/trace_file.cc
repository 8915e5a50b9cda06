#include "server/ingest/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // It hashes by the widest vectors of this machine, three times as fast.
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "kernels/ball/format.h"
#include "plumbline/v1/archive.pb.h"
#include "server/ingest/assembler.h"
#include "server/ingest/frames.h"
#include "server/ingest/golden_store.h"
#include "server/ingest/limits.h"
#include "server/ingest/step_memory.h"

namespace plumbline {
namespace {

using absl::StrCat;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::ConcatenatingInputStream;
using google::protobuf::io::CopyingOutputStreamAdaptor;
using google::protobuf::io::FileInputStream;
using google::protobuf::io::LimitingInputStream;
using google::protobuf::io::ZeroCopyInputStream;

constexpr char kMagic[] = "PLTRACE2";
constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kVersionAt = 7;
constexpr std::size_t kChecksumBytes = 8;
constexpr char kNoTrace[] = "expected a trace that `plumb export-trace` or plumbline.dump wrote, found something else";
constexpr char kCut[] = "it ends in the middle of a step";

absl::Status disk_error(const std::string& doing, const std::string& path, int error) {
  const std::string text = StrCat("cannot ", doing, " ", path, ": ", strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

// Closes at the end of a scope.
struct File {
  int descriptor = -1;
  explicit File(int fd) : descriptor(fd) {}
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
};

// XXH3-64 of what is added.
class Checksum {
 public:
  Checksum() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void add(const void* data, std::size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  XXH64_canonical_t canonical() const {
    XXH64_canonical_t sum;
    XXH64_canonicalFromHash(&sum, XXH3_64bits_digest(state_.get()));
    return sum;
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// To a file, with the checksum of what was written: to read it again for that takes as long as writing it.
class SummedOutput : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit SummedOutput(int descriptor) : descriptor_(descriptor) {}
  bool Write(const void* buffer, int size) override {
    sum_.add(buffer, static_cast<std::size_t>(size));
    for (const char* from = static_cast<const char*>(buffer); size > 0;) {
      const ssize_t written = ::write(descriptor_, from, static_cast<std::size_t>(size));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        error_ = errno;
        return false;
      }
      from += written;
      size -= static_cast<int>(written);
    }
    return true;
  }
  const Checksum& sum() const { return sum_; }
  int error() const { return error_; }  // 0: none.

 private:
  int descriptor_, error_ = 0;
  Checksum sum_;
};

// Of the first `bytes` of a file, canonical; -1 on a read error or a shorter file.
int checksum(int descriptor, std::uint64_t bytes, XXH64_canonical_t* sum) {
  Checksum of;
  std::vector<char> buffer(1 << 18);
  std::uint64_t done = 0;
  while (done < bytes) {
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes - done));
    const ssize_t got = pread(descriptor, buffer.data(), want, static_cast<off_t>(done));
    if (got <= 0) return -1;
    of.add(buffer.data(), static_cast<std::size_t>(got));
    done += static_cast<std::uint64_t>(got);
  }
  *sum = of.canonical();
  return 0;
}

// A whole number by itself, as an optimizer's count of its steps: no rounding moves it away from its pair's.
bool is_counter(const Trace& trace, const TraceLeaf& leaf) {
  const auto payload = trace.payloads.find(leaf.payload);
  if (leaf.count != 1 || leaf.format == Format::kUnknown || payload == trace.payloads.end()) return false;
  double value = 0;
  decode(leaf.format, payload->second->data(), 1, &value);
  return std::isfinite(value) && value == std::trunc(value);
}

// A buffer of which a pair may hold something else, as scales that statistics were folded into, has no more bytes;
// masks and caches have.
constexpr std::size_t kTableBytesMax = 64 << 10;

// Whether its pair may have no such leaf and be the same program: a pair counts in Python, has a setting of its
// optimizer's group (a learning rate) as a number of Python, cleared the gradient, or holds another buffer.
bool may_stand_alone(const Trace& trace, const TraceLeaf& leaf) {
  const auto payload = trace.payloads.find(leaf.payload);
  if (leaf.role == LeafRole::kBuffer && payload != trace.payloads.end() && payload->second->size() <= kTableBytesMax)
    return true;
  const bool setting =
      leaf.role == LeafRole::kState && leaf.count == 1 && unranked(leaf.name).starts_with("state:group");
  return setting || is_counter(trace, leaf) || carried_gradient(leaf.role, leaf.name);
}

std::function<bool(PayloadId)> kept_payloads(const Trace& trace, TraceContent content) {
  // What a run begins with is compared with what its pair begins with.
  if (content == TraceContent::kWhole || trace.identity.step == 0) return [](PayloadId) { return true; };
  auto left_out = std::make_shared<std::set<PayloadId>>();
  std::unordered_map<ValueId, PayloadId> of_value;
  for (const TraceLeaf& leaf : trace.leaves) {
    of_value[leaf.value] = leaf.payload;
    if (persistent(leaf.role) && !may_stand_alone(trace, leaf)) left_out->insert(leaf.payload);
  }
  for (const TraceLeaf& leaf : trace.leaves) {  // A payload that another leaf names as well.
    if (!persistent(leaf.role)) left_out->erase(leaf.payload);
  }
  for (const TraceOp& op : trace.ops) {
    left_out->erase(op.decision);
    for (const TraceResult& result : op.results) left_out->erase(result.observed);
  }
  for (const TraceTap& tap : trace.taps) {
    left_out->erase(tap.reference);
    for (const TraceTap::Term& term : tap.terms) {
      left_out->erase(term.observed);
      const auto leaf = of_value.find(term.tensor.value);
      if (term.observed == 0 && leaf != of_value.end()) left_out->erase(leaf->second);
    }
  }
  return [left_out](PayloadId id) { return left_out->count(id) == 0; };
}

v1::TraceHeader::Step describe(const Trace& trace) {
  v1::TraceHeader::Step step;
  step.mutable_identity()->set_project(trace.identity.project);
  step.mutable_identity()->set_job(trace.identity.job);
  step.mutable_identity()->set_run(trace.identity.run);
  step.mutable_identity()->set_rank(trace.identity.rank);
  step.set_step(trace.identity.step);
  step.set_digest(trace.digest);
  step.mutable_rank_digests()->Assign(trace.rank_digests.begin(), trace.rank_digests.end());
  step.set_replicated(trace.replicated);
  return step;
}

v1::TraceHeader header_of(const TraceRecord& record, const std::string& trace_id) {
  v1::TraceHeader header;
  *header.mutable_step() = describe(*record.trace);
  header.mutable_step()->set_trace_id(trace_id);
  if (record.reference != nullptr) *header.mutable_reference() = describe(*record.reference);
  header.set_reference_name(record.reference_name);
  header.set_profile(record.profile);
  header.set_alpha(record.alpha);
  if (record.golden != nullptr) *header.mutable_golden() = to_proto(*record.golden);
  if (record.previous_step >= 0) *header.mutable_previous() = memory_of(record);
  return header;
}

// Gives the assembler the next frame. `begins`: it has to begin a step. Its first bytes tell whether it is one of data,
// of which the others are read to where they belong.
absl::StatusOr<TraceAssembler::Result> take_frame(FileInputStream* stream, bool begins, TraceAssembler* assembler) {
  const absl::Status unread = begins ? absl::InvalidArgumentError(kNoTrace) : absl::DataLossError(kCut);
  constexpr std::uint32_t kHead = 64;
  std::uint8_t head[kHead];
  std::uint32_t bytes = 0, of_head = 0;
  {
    CodedInputStream coded(stream);
    if (!coded.ReadVarint32(&bytes)) return unread;
    of_head = std::min(bytes, kHead);
    if (!coded.ReadRaw(head, static_cast<int>(of_head))) return unread;
  }
  ArrayInputStream first(head, static_cast<int>(of_head)), again(head, static_cast<int>(of_head));
  LimitingInputStream rest(stream, bytes - of_head);
  Chunk chunk;
  if (read_chunk(&first, bytes, &chunk)) {
    if (begins) return unread;
    ZeroCopyInputStream* const parts[] = {&first, &rest};
    ConcatenatingInputStream data(parts, 2);
    StreamSource source(&data);
    return assembler->add(chunk, &source);
  }
  ZeroCopyInputStream* const parts[] = {&again, &rest};
  ConcatenatingInputStream whole(parts, 2);
  v1::AuditRequest frame;
  if (!frame.ParseFromZeroCopyStream(&whole) || whole.ByteCount() != bytes) return unread;
  if (begins && !frame.has_step_begin()) return unread;
  return assembler->add(frame);
}

// The frames of one step. `step` null: of a dump, whatever it is.
absl::StatusOr<std::shared_ptr<const Trace>> read_frames(FileInputStream* stream, const v1::TraceHeader::Step* step,
                                                         const TraceReading& reading) {
  TraceAssembler::Options options;
  options.run = {"default", "dump", "dump", 0, 0};
  if (step != nullptr) {
    options.run = {step->identity().project(), step->identity().job(), step->identity().run(), step->identity().rank(),
                   0};
  }
  options.step_bytes_max = reading.step_bytes_max;
  options.elements_max = reading.elements_max;
  options.buffers = reading.buffers;
  options.leaves_may_lack_payloads = step != nullptr;
  TraceAssembler assembler(std::move(options));
  for (TraceAssembler::Progress progress = TraceAssembler::Progress::kTaken;
       progress != TraceAssembler::Progress::kStepDone;) {
    const auto result = take_frame(stream, step == nullptr && !assembler.in_step(), &assembler);
    if (!result.ok()) return result.status();
    if (result->violation) {
      const auto code = result->violation.code == absl::StatusCode::kResourceExhausted
                            ? absl::StatusCode::kResourceExhausted
                            : absl::StatusCode::kDataLoss;
      return absl::Status(code, result->violation.message());
    }
    progress = result->progress;
  }
  auto trace = std::const_pointer_cast<Trace>(assembler.take_step().trace);
  if (step != nullptr) {
    if (trace->identity.step != step->step()) return absl::DataLossError("its steps are not those that it names");
    trace->digest = step->digest();
    trace->rank_digests.assign(step->rank_digests().begin(), step->rank_digests().end());
    trace->replicated = step->replicated();
  }
  return std::shared_ptr<const Trace>(std::move(trace));
}

// Checks that a file that begins with a magic is whole, and of our version.
absl::Status check_seal(int descriptor, std::uint64_t end, const char* magic) {
  if (magic[kVersionAt] != kMagic[kVersionAt] && magic[kVersionAt] >= '0' && magic[kVersionAt] <= '9') {
    return absl::FailedPreconditionError(
        StrCat("the file is of version ", std::string(1, magic[kVersionAt]), "; this daemon reads version 2"));
  }
  if (memcmp(magic, kMagic, kMagicBytes) != 0 || end < kMagicBytes + kChecksumBytes) {
    return absl::DataLossError("the file is damaged: it is too short");
  }
  XXH64_canonical_t sum;
  unsigned char stored[kChecksumBytes];
  if (checksum(descriptor, end - kChecksumBytes, &sum) != 0 ||
      pread(descriptor, stored, kChecksumBytes, static_cast<off_t>(end - kChecksumBytes)) != kChecksumBytes) {
    return absl::DataLossError("the file cannot be read");
  }
  if (memcmp(stored, sum.digest, kChecksumBytes) != 0) {
    return absl::DataLossError("the file is damaged or cut short: its checksum differs");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::uint64_t> write_trace_file(const TraceRecord& record, TraceContent content, const std::string& path,
                                               const std::string& trace_id) {
  const std::string part = path + ".part";
  File file(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.descriptor < 0) return disk_error("create", part, errno);
  std::uint64_t bytes = 0;
  SummedOutput output(file.descriptor);
  {
    CopyingOutputStreamAdaptor stream(&output, 1 << 18);
    bool written = true;
    {
      google::protobuf::io::CodedOutputStream coded(&stream);
      coded.WriteRaw(kMagic, kMagicBytes);
      const auto write = [&coded](const google::protobuf::MessageLite& message) {
        return google::protobuf::util::SerializeDelimitedToCodedStream(message, &coded) && !coded.HadError();
      };
      written = write(header_of(record, trace_id)) &&
                emit_frames(*record.trace, kept_payloads(*record.trace, content), write);
      if (record.reference != nullptr) {
        written = written && emit_frames(
                                 *record.reference, [](PayloadId) { return true; }, write);
      }
    }
    written = stream.Flush() && written;
    bytes = static_cast<std::uint64_t>(stream.ByteCount());
    if (!written) {
      const int error = output.error() != 0 ? output.error() : EIO;
      unlink(part.c_str());
      return disk_error("write", part, error);
    }
  }
  // What is kept for a verdict is on disk before the verdict says so; a reference's trace that a power loss takes is
  // missed where it is looked for.
  const bool durable = content == TraceContent::kWhole;
  const XXH64_canonical_t sum = output.sum().canonical();
  if (pwrite(file.descriptor, sum.digest, kChecksumBytes, static_cast<off_t>(bytes)) !=
          static_cast<ssize_t>(kChecksumBytes) ||
      (durable && fsync(file.descriptor) != 0) || rename(part.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(part.c_str());
    return disk_error("write", part, error);
  }
  return bytes + kChecksumBytes;
}

absl::StatusOr<TraceRecord> read_trace_file(const std::string& path, const TraceReading& reading) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.descriptor < 0) return disk_error("open", path, errno);
  const off_t end = lseek(file.descriptor, 0, SEEK_END);
  lseek(file.descriptor, 0, SEEK_SET);
  FileInputStream stream(file.descriptor, 1 << 18);
  TraceRecord record;

  char magic[kMagicBytes] = {};
  const bool sealed = pread(file.descriptor, magic, kMagicBytes, 0) == static_cast<ssize_t>(kMagicBytes) &&
                      memcmp(magic, kMagic, kVersionAt) == 0;
  if (!sealed) {
    auto trace = read_frames(&stream, nullptr, reading);
    if (!trace.ok()) return trace.status();
    record.trace = *std::move(trace);
    return record;
  }
  if (auto checked = check_seal(file.descriptor, static_cast<std::uint64_t>(end), magic); !checked.ok()) {
    return checked;
  }
  v1::TraceHeader header;
  bool clean = false;
  if (!stream.Skip(kMagicBytes) ||
      !google::protobuf::util::ParseDelimitedFromZeroCopyStream(&header, &stream, &clean)) {
    return absl::DataLossError("its header does not parse");
  }
  auto trace = read_frames(&stream, &header.step(), reading);
  if (!trace.ok()) return trace.status();
  record.trace = *std::move(trace);
  if (header.has_reference()) {
    auto reference = read_frames(&stream, &header.reference(), reading);
    if (!reference.ok()) return reference.status();
    record.reference = *std::move(reference);
  }
  if (header.has_golden()) {
    record.golden = std::make_shared<const GoldenStep>(from_proto(header.golden()));
    if (auto wrong = check_golden_step(*record.golden)) return absl::DataLossError(wrong.message());
  }
  record.reference_name = header.reference_name();
  record.profile = header.profile();
  record.alpha = header.alpha();
  if (header.has_previous()) remember(header.previous(), &record);
  return record;
}

std::string trace_id_of_file(const std::string& path) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.descriptor < 0) return "";
  FileInputStream stream(file.descriptor);
  v1::TraceHeader header;
  bool clean = false;
  const bool read =
      stream.Skip(kMagicBytes) && google::protobuf::util::ParseDelimitedFromZeroCopyStream(&header, &stream, &clean);
  return read ? header.step().trace_id() : "";
}

}  // namespace plumbline
