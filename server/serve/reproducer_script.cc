#include "server/serve/reproducer_script.h"

#include <google/protobuf/util/json_util.h>

#include <stdexcept>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "plumbline/v1/archive.pb.h"
#include "reproducer_text.h"
#include "server/ingest/frames.h"
#include "server/store/encode.h"

namespace plumbline {
namespace {

constexpr std::size_t kEmbeddedBytesMax = 64u << 10;

template <typename T>
std::uint64_t append(const std::vector<T>& values, std::string* data) {
  const std::uint64_t at = data->size();
  data->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return at;
}

std::string json(const v1::ReproducerCase& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) throw std::runtime_error("the operation cannot be written as JSON: " + status.ToString());
  return text;
}

}  // namespace

ReproducerScript write_reproducer(const Reproducer& reproducer, const Verdict& verdict) {
  const v1::Verdict wire = to_proto(verdict);  // Its texts are UTF-8.
  v1::ReproducerCase made;
  made.set_verdict(wire.id());
  made.set_sentence(wire.sentence());
  made.set_suspect(wire.suspect_detail());
  made.set_profile(wire.profile());
  write_op(reproducer.op, made.mutable_op());
  made.mutable_op()->set_source(wire.suspect().source());
  made.mutable_op()->set_module(wire.suspect().module());
  made.mutable_op()->clear_results();
  std::string data;
  for (const Reproducer::Operand& operand : reproducer.operands) {
    auto* written = made.add_operands();
    write_tensor(operand.tensor, written->mutable_tensor());
    written->set_at(append(*operand.content, &data));
    written->set_exact(operand.exact);
  }
  for (const Reproducer::Expected& expected : reproducer.results) {
    auto* written = made.add_results();
    write_tensor(expected.tensor, written->mutable_tensor());
    written->set_argument(expected.argument);
    written->set_at(append(expected.low, &data));
    append(expected.high, &data);
  }
  const bool embedded = data.size() <= kEmbeddedBytesMax;
  // JSON never has three double quotes in a row: it can stand in a raw literal of Python as it is.
  return {absl::StrReplaceAll(kReproducerText, {{"@CASE@", json(made)},
                                                {"@DATA@", embedded ? absl::Base64Escape(data) : std::string()}}),
          embedded ? std::string() : std::move(data)};
}

}  // namespace plumbline
