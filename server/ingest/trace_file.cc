#include "server/ingest/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "server/ingest/assembler.h"
#include "server/ingest/frames.h"
#include "server/ingest/limits.h"

namespace plumbline {
namespace {

using absl::StrCat;
using google::protobuf::io::FileInputStream;
using google::protobuf::io::FileOutputStream;

constexpr char kMagic[] = "PLTRACE1";
constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kDigestBytes = 32;
constexpr std::size_t kChecksumBytes = 8;

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

// XXH3-64 of the first `bytes` of a file, canonical; -1 on a read error or a shorter file.
int checksum(int descriptor, std::uint64_t bytes, XXH64_canonical_t* sum) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> buffer(1 << 18);
  std::uint64_t done = 0;
  while (done < bytes) {
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes - done));
    const ssize_t got = pread(descriptor, buffer.data(), want, static_cast<off_t>(done));
    if (got <= 0) return -1;
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<std::size_t>(got));
    done += static_cast<std::uint64_t>(got);
  }
  XXH64_canonicalFromHash(sum, XXH3_64bits_digest(state.get()));
  return 0;
}

std::function<bool(PayloadId)> kept_payloads(const Trace& trace) {
  // What a run begins with is compared with what its pair begins with.
  if (trace.identity.step == 0) return [](PayloadId) { return true; };
  auto left_out = std::make_shared<std::set<PayloadId>>();
  std::unordered_map<ValueId, PayloadId> of_value;
  for (const TraceLeaf& leaf : trace.leaves) {
    of_value[leaf.value] = leaf.payload;
    if (leaf.role == LeafRole::kParameter || leaf.role == LeafRole::kBuffer || leaf.role == LeafRole::kState) {
      left_out->insert(leaf.payload);
    }
  }
  for (const TraceLeaf& leaf : trace.leaves) {  // A payload that another leaf names as well.
    if (leaf.role == LeafRole::kData || leaf.role == LeafRole::kRandom) left_out->erase(leaf.payload);
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

}  // namespace

absl::StatusOr<std::uint64_t> write_trace_file(const Trace& trace, const std::string& path) {
  const std::string part = path + ".part";
  File file(open(part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.descriptor < 0) return disk_error("create", part, errno);
  std::uint64_t bytes = 0;
  {
    FileOutputStream stream(file.descriptor, 1 << 18);
    bool written = true;
    {
      google::protobuf::io::CodedOutputStream coded(&stream);
      coded.WriteRaw(kMagic, kMagicBytes);
      std::string digest = trace.digest;
      digest.resize(kDigestBytes, '0');
      coded.WriteRaw(digest.data(), kDigestBytes);
      v1::AuditRequest open;
      open.mutable_open()->set_handle(trace.identity.run_id());
      written = google::protobuf::util::SerializeDelimitedToCodedStream(open, &coded);
      written = written && emit_frames(trace, kept_payloads(trace), [&coded](const v1::AuditRequest& frame) {
                  return google::protobuf::util::SerializeDelimitedToCodedStream(frame, &coded) && !coded.HadError();
                });
    }
    written = stream.Flush() && written;
    bytes = static_cast<std::uint64_t>(stream.ByteCount());
    if (!written) {
      const int error = stream.GetErrno() != 0 ? stream.GetErrno() : EIO;
      unlink(part.c_str());
      return disk_error("write", part, error);
    }
  }
  XXH64_canonical_t sum;
  if (checksum(file.descriptor, bytes, &sum) != 0 ||
      pwrite(file.descriptor, sum.digest, kChecksumBytes, static_cast<off_t>(bytes)) !=
          static_cast<ssize_t>(kChecksumBytes) ||
      rename(part.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(part.c_str());
    return disk_error("write", part, error);
  }
  return bytes + kChecksumBytes;
}

absl::StatusOr<std::shared_ptr<const Trace>> read_trace_file(const std::string& path, const StepIdentity& step) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.descriptor < 0) return disk_error("open", path, errno);
  const auto damaged = [&path](const std::string& why) { return absl::DataLossError(StrCat(path, ": ", why)); };
  const off_t end = lseek(file.descriptor, 0, SEEK_END);
  if (end < static_cast<off_t>(kMagicBytes + kDigestBytes + kChecksumBytes)) return damaged("too short");
  const std::uint64_t bytes = static_cast<std::uint64_t>(end) - kChecksumBytes;
  XXH64_canonical_t sum;
  unsigned char stored[kChecksumBytes];
  if (checksum(file.descriptor, bytes, &sum) != 0 ||
      pread(file.descriptor, stored, kChecksumBytes, static_cast<off_t>(bytes)) != kChecksumBytes) {
    return damaged("cannot be read");
  }
  if (memcmp(stored, sum.digest, kChecksumBytes) != 0) return damaged("its checksum differs");

  lseek(file.descriptor, 0, SEEK_SET);
  FileInputStream stream(file.descriptor, 1 << 18);
  std::string magic, digest;
  {
    google::protobuf::io::CodedInputStream coded(&stream);
    if (!coded.ReadString(&magic, kMagicBytes) || magic != kMagic || !coded.ReadString(&digest, kDigestBytes)) {
      return damaged("not a trace of format 1");
    }
  }
  TraceAssembler::Options options;
  options.run = step;
  options.leaves_may_lack_payloads = true;
  TraceAssembler assembler(std::move(options));
  v1::AuditRequest frame;
  bool opened = false;
  for (;;) {
    frame.Clear();
    bool clean = false;
    if (!google::protobuf::util::ParseDelimitedFromZeroCopyStream(&frame, &stream, &clean)) {
      return damaged("a frame does not parse");
    }
    if (!opened) {
      if (frame.open().handle() != step.run_id()) return damaged(StrCat("not of run ", step.run_id()));
      opened = true;
      continue;
    }
    const TraceAssembler::Result result = assembler.add(frame);
    if (result.violation) return damaged(result.violation.message());
    if (result.progress == TraceAssembler::Progress::kStepDone) break;
  }
  auto trace = std::const_pointer_cast<Trace>(assembler.take_step().trace);
  if (trace->identity != step) return damaged(StrCat("not of step ", step.step));
  trace->digest = digest;
  return std::shared_ptr<const Trace>(std::move(trace));
}

}  // namespace plumbline
