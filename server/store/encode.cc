#include "server/store/encode.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace plumbline {
namespace {

constexpr std::size_t kTapsMax = 4096;
constexpr std::size_t kContributorsMax = 16;
constexpr std::size_t kOpaqueNamesMax = 16;
constexpr std::size_t kAlignedMax = 256;
constexpr std::size_t kModulesMax = 4096;
constexpr std::size_t kWantedMax = 1024;

// Length of the well-formed UTF-8 sequence at the start of `text` (Unicode 15, table 3-7); 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (first == 0xE0 && byte(1) < 0xA0) return 0;
    if (first == 0xED && byte(1) > 0x9F) return 0;
    return tail(1) && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (first == 0xF0 && byte(1) < 0x90) return 0;
    if (first == 0xF4 && byte(1) > 0x8F) return 0;
    return tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

std::string utf8(std::string text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(std::string_view(text).substr(i));
    if (length == 0) text[i] = '?';
    i += std::max<std::size_t>(length, 1);
  }
  return text;
}

void encode(const Place& from, v1::Place* to) {
  to->set_op(utf8(from.op));
  to->set_source(utf8(from.source));
  to->set_module(utf8(from.module));
  to->set_format(utf8(from.format));
}

void encode(const Contributor& from, v1::Contributor* to) {
  encode(from.place, to->mutable_place());
  to->set_share(from.share);
  to->set_count(from.count);
}

void encode(const TapVerdict& from, v1::TapVerdict* to) {
  to->set_name(utf8(from.name));
  to->set_outcome(static_cast<v1::Outcome>(from.outcome));
  to->set_grade(static_cast<v1::Grade>(from.grade));
  to->set_elements(from.elements);
  to->set_low(from.low);
  to->set_high(from.high);
  to->set_observed(from.observed);
  to->set_worst_element(from.worst_element);
  to->set_reference(from.reference);
  to->set_deviation(from.deviation);
  to->set_envelope(from.envelope);
  to->set_margin(from.margin);
  to->set_math_resolution(from.math_resolution);
  to->set_exec_resolution(from.exec_resolution);
  to->set_explained(from.explained);
  to->set_interval_radius(from.interval_radius);
  to->set_drift(from.drift);
  to->set_worst_case(from.worst_case);
  if (!std::isnan(from.surprise)) to->set_surprise(from.surprise);
}

void encode(const Coverage& from, v1::Coverage* to) {
  to->set_operations(from.operations);
  to->set_audited(from.audited);
  to->set_opaque(from.opaque);
  for (std::size_t i = 0; i < std::min(from.opaque_names.size(), kOpaqueNamesMax); ++i) {
    to->add_opaque_names(utf8(from.opaque_names[i]));
  }
  to->set_decisions(from.decisions);
  to->set_unstable(from.unstable);
  to->set_elements(from.elements);
  to->set_compared(from.compared);
  to->set_work(from.work);
  to->set_work_audited(from.work_audited);
  to->set_partial(from.partial);
  to->set_modules(from.modules);
  to->set_modules_audited(from.modules_audited);
  to->set_parameters(from.parameters);
  to->set_parameters_audited(from.parameters_audited);
  for (std::size_t i = 0; i < std::min(from.audited_modules.size(), kModulesMax); ++i) {
    const Coverage::Module& module = from.audited_modules[i];
    auto* wire = to->add_audited_modules();
    wire->set_path(utf8(module.path));
    wire->set_operations(module.operations);
    wire->set_parameters(module.parameters);
  }
  for (std::size_t i = 0; i < std::min(from.left_out.size(), kModulesMax); ++i)
    to->add_left_out(utf8(from.left_out[i]));
}

void encode(const Hazard& from, v1::Hazard* to) {
  to->set_kind(utf8(from.kind));
  encode(from.place, to->mutable_place());
  to->set_share(from.share);
  to->set_remedy(utf8(from.remedy));
  to->set_sentence(utf8(from.sentence));
}

void encode(const Alignment& from, v1::Alignment* to) {
  const std::size_t kept = std::min(from.operations.size(), kAlignedMax);
  for (std::size_t i = 0; i < kept; ++i) {
    const AlignedOperation& operation = from.operations[i];
    auto* wire = to->add_operations();
    if (operation.target) encode(*operation.target, wire->mutable_target());
    if (operation.reference) encode(*operation.reference, wire->mutable_reference());
    wire->set_deviation(operation.deviation);
    wire->set_allowed(operation.allowed);
    wire->set_elements(operation.elements);
    wire->set_element(operation.element);
    wire->set_target_value(operation.target_value);
    wire->set_reference_value(operation.reference_value);
    wire->set_elsewhere(operation.elsewhere);
    wire->set_drift(operation.drift);
  }
  to->set_before(from.before);
  to->set_after(from.after + (from.operations.size() - kept));
  if (from.parts && *from.parts < kept) to->set_parts(static_cast<std::uint32_t>(*from.parts));
  to->set_agree(from.agree);
  to->set_differ(from.differ);
  to->set_target_alone(from.target_alone);
  to->set_reference_alone(from.reference_alone);
}

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

template <typename Integer>
bool parse_integer(std::string_view text, Integer* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= 0;
}

}  // namespace

v1::Verdict to_proto(const Verdict& from) {
  v1::Verdict to;
  to.set_id(utf8(from.identity.id()));
  to.set_project(utf8(from.identity.project));
  to.set_job(utf8(from.identity.job));
  to.set_run(utf8(from.identity.run));
  to.set_rank(from.identity.rank);
  to.set_step(from.identity.step);
  const std::int64_t time_us = from.time_unix_us != 0 ? from.time_unix_us : now_us();
  to.mutable_time()->set_seconds(time_us / 1'000'000);
  to.mutable_time()->set_nanos(static_cast<std::int32_t>(time_us % 1'000'000) * 1000);
  to.set_verdict(static_cast<v1::Outcome>(from.outcome));
  to.set_grade(static_cast<v1::Grade>(from.grade));
  to.set_cause(static_cast<v1::Cause>(from.cause));
  to.set_sentence(utf8(from.sentence));
  if (!std::isnan(from.surprise)) to.set_surprise(from.surprise);
  to.set_deviation(from.deviation);
  to.set_envelope(from.envelope);
  to.set_margin(from.margin);
  to.set_math_resolution(from.math_resolution);
  to.set_exec_resolution(from.exec_resolution);
  to.set_explained(from.explained);
  to.set_deciding_tap(utf8(from.deciding_tap));
  if (from.suspect) encode(*from.suspect, to.mutable_suspect());
  to.set_suspect_detail(utf8(from.suspect_detail));
  for (const std::string& advice : from.advice) to.add_advice(utf8(advice));
  for (std::size_t i = 0; i < std::min(from.contributors.size(), kContributorsMax); ++i) {
    encode(from.contributors[i], to.add_contributors());
  }
  for (std::size_t i = 0; i < std::min(from.taps.size(), kTapsMax); ++i) encode(from.taps[i], to.add_taps());
  encode(from.coverage, to.mutable_coverage());
  for (const Hazard& hazard : from.hazards) encode(hazard, to.add_hazards());
  if (from.alignment) encode(*from.alignment, to.mutable_alignment());
  to.set_reference(utf8(from.reference));
  to.set_profile(utf8(from.profile));
  for (const std::string& note : from.notes) to.add_notes(utf8(note));
  to.set_audit_seconds(from.audit_seconds);
  to.set_digest(utf8(from.digest));
  to.set_backend(utf8(from.backend));
  if (from.trace_kept) to.set_trace(v1::TRACE_STATE_KEPT);
  to.set_ranks(static_cast<std::int32_t>(from.rank_digests.size()));
  for (std::size_t i = 0; i < std::min(from.wanted.size(), kWantedMax); ++i) {
    auto* wanted = to.add_wanted();
    wanted->set_op(utf8(from.wanted[i].op));
    wanted->set_fused(from.wanted[i].fused);
  }
  for (const std::string& digest : from.rank_digests) to.add_rank_digests(utf8(digest));
  return to;
}

std::string storable(std::string text) {
  text = utf8(std::move(text));
  std::replace(text.begin(), text.end(), '\0', '?');
  return text;
}

bool parse_id(const std::string& id, StepIdentity* identity) {
  std::vector<std::string_view> parts;
  std::string_view rest = id;
  for (std::size_t slash; (slash = rest.find('/')) != std::string_view::npos; rest.remove_prefix(slash + 1)) {
    parts.push_back(rest.substr(0, slash));
  }
  parts.push_back(rest);
  if (parts.size() != 5 || parts[0].empty() || parts[1].empty() || parts[2].empty()) return false;
  // Verdicts of all ranks that stream to several daemons have rank -1.
  if (parts[3] == "-1") {
    identity->rank = -1;
  } else if (!parse_integer(parts[3], &identity->rank)) {
    return false;
  }
  if (!parse_integer(parts[4], &identity->step)) return false;
  identity->project = parts[0];
  identity->job = parts[1];
  identity->run = parts[2];
  return true;
}

}  // namespace plumbline
