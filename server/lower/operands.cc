#include "server/lower/operands.h"

namespace plumbline {
namespace {

// Tensors of integers are rounded to 16 bits before they meet others in such a format.
Expr met(Expr x, Format common) {
  return is_integer(x.format()) && x.rank() > 0 && reduced_precision(common) ? cast(x, common) : x;
}

bool wider(Expr x, Format format) {
  return is_float(x.format()) && traits(x.format()).precision > traits(format).precision;
}

}  // namespace

bool reduced_precision(Format format) { return format == Format::kFloat16 || format == Format::kBFloat16; }

Format common_format(Call& call, std::initializer_list<std::string_view> names) {
  Format common = call.result_format();
  for (const std::string_view name : names) {
    if (!is_float(common) || !call.is_tensor(name)) continue;
    const Expr x = call.tensor(name);
    if (x.rank() > 0 && is_float(x.format())) common = promote(common, x.format());
  }
  return is_float(common) ? common : call.emitter().compute();
}

Format compared_format(Call& call) {
  Format of_tensors = Format::kUnknown, of_all = Format::kUnknown;
  for (const char* name : {"self", "other"}) {
    if (!call.is_tensor(name)) continue;
    const Expr x = call.tensor(name);
    if (!is_float(x.format())) continue;
    const auto add = [&](Format* to) { *to = is_float(*to) ? promote(*to, x.format()) : x.format(); };
    add(&of_all);
    if (x.rank() > 0) add(&of_tensors);
  }
  if (is_float(of_tensors)) return of_tensors;
  return is_float(of_all) ? of_all : call.emitter().compute();
}

Expr narrowed(Expr x, Format format) { return wider(x, format) ? cast(x, format) : met(x, format); }

Expr held(Call& call, std::string_view name, Format common) {
  const Expr x = call.operand(name);
  return call.is_tensor(name) ? narrowed(x, common) : met(x, common);
}

Expr held_on_the_right(Call& call, std::string_view name, Format common, std::optional<Format> number) {
  const Expr x = call.operand(name, number);
  if (!call.is_tensor(name)) return met(x, common);
  if (!reduced_precision(common) || !wider(x, common)) return narrowed(x, common);
  return call.emitter().narrowed_factor(narrowed(x, Format::kFloat32), common);
}

}  // namespace plumbline
