#include "client/cpp/page/columns.h"

#include <limits>

#include "client/cpp/names.h"

namespace plumbline {

std::string cut(const std::string& text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;
  return text.substr(0, end) + "\u2026";
}

std::uint32_t Columns::text(std::string text) {
  const auto [at, added] = known_.emplace(std::move(text), static_cast<std::uint32_t>(known_.size()));
  if (added) steps_.add_texts(at->first);
  return at->second;
}

void Columns::add(const v1::Verdict& verdict, double drift, std::size_t text_bytes) {
  const v1::Coverage& coverage = verdict.coverage();
  steps_.add_run(text(verdict.run()));
  steps_.add_rank(verdict.rank());
  steps_.add_step(verdict.step());
  steps_.add_time(static_cast<double>(verdict.time().seconds()));
  steps_.add_verdict(text(short_name(verdict.verdict())));
  steps_.add_grade(text(short_name(verdict.grade())));
  steps_.add_cause(text(short_name(verdict.cause())));
  steps_.add_sentence(text(cut(verdict.sentence(), text_bytes)));
  steps_.add_reference(text(verdict.reference()));
  steps_.add_deciding_tap(text(verdict.deciding_tap()));
  steps_.add_surprise(verdict.has_surprise() ? verdict.surprise() : std::numeric_limits<double>::quiet_NaN());
  steps_.add_deviation(verdict.deviation());
  steps_.add_envelope(verdict.envelope());
  steps_.add_margin(verdict.margin());
  steps_.add_math_resolution(verdict.math_resolution());
  steps_.add_exec_resolution(verdict.exec_resolution());
  steps_.add_drift(drift);
  steps_.add_audit_seconds(verdict.audit_seconds());
  steps_.add_operations(coverage.operations());
  steps_.add_audited(coverage.audited());
  steps_.add_opaque(coverage.opaque());
  steps_.add_modules(coverage.modules());
  steps_.add_modules_audited(coverage.modules_audited());
  steps_.add_hazards(static_cast<std::uint32_t>(verdict.hazards_size()));
}

}  // namespace plumbline
