#include "client/cpp/cli/formats.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/text_table.h"
#include "kernels/ball/description.h"

namespace plumbline {
namespace {

std::string json_line(const FormatDescription& f) {
  const auto real = [](double x) { return absl::StrFormat("%.17g", x); };
  const auto truth = [](bool x) { return x ? "true" : "false"; };
  std::string line = absl::StrCat("{\"name\":\"", f.name, "\",\"bits\":", f.bits, ",\"bytes\":", f.bytes,
                                  ",\"lowest\":", real(f.lowest), ",\"largest\":", real(f.largest));
  if (f.fixed) {
    absl::StrAppend(&line, ",\"step\":", real(f.smallest_positive));
  } else {
    absl::StrAppend(&line, ",\"smallest_normal\":", real(f.smallest_normal),
                    ",\"smallest_subnormal\":", real(f.smallest_positive), ",\"epsilon\":", real(f.epsilon),
                    ",\"unit_roundoff\":", real(f.unit_roundoff));
  }
  return absl::StrCat(line, ",\"infinities\":", truth(f.infinities), ",\"nan\":", truth(f.nan), "}\n");
}

}  // namespace

std::string list_formats(const std::vector<std::string>& names, bool json, std::string* wrong) {
  std::vector<FormatDescription> formats;
  for (const std::string& name : names) {
    auto found = describe(std::string_view(name));
    if (const auto* error = std::get_if<std::string>(&found)) {
      *wrong = *error;
      return "";
    }
    formats.push_back(std::get<FormatDescription>(found));
  }
  if (names.empty()) formats = described_formats();
  std::string text;
  TextTable table({"FORMAT", ">BITS", ">BYTES", ">LOWEST", ">LARGEST", ">SMALLEST NORMAL", ">SMALLEST SUBNORMAL/STEP",
                   ">EPSILON", ">UNIT ROUNDOFF", "INFINITIES", "NAN"});
  for (const FormatDescription& f : formats) {
    text += json_line(f);
    const auto unless_fixed = [&](double x) { return f.fixed ? "-" : number(x, 6); };
    table.add({f.name, absl::StrCat(f.bits), absl::StrCat(f.bytes), number(f.lowest, 9), number(f.largest, 9),
               unless_fixed(f.smallest_normal), number(f.smallest_positive, 6), unless_fixed(f.epsilon),
               unless_fixed(f.unit_roundoff), f.infinities ? "yes" : "no", f.nan ? "yes" : "no"});
  }
  return json ? text : table.str();
}

}  // namespace plumbline
