#include "client/cpp/text_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_replace.h"

namespace plumbline {
namespace {

// Code points, which is near enough to columns for names of programs.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0u) != 0x80u; }));
}

// The characters that a terminal obeys beyond ASCII: the controls U+0080 to U+009F, and the marks that turn the
// direction of a line (Unicode 9, "Bidirectional Algorithm"), with which a name could show what is not there.
std::vector<std::pair<std::string, std::string>> make_obeyed() {
  std::vector<std::pair<std::string, std::string>> marks = {
      {"\u061C", "?"}, {"\u200E", "?"}, {"\u200F", "?"}, {"\u202A", "?"}, {"\u202B", "?"}, {"\u202C", "?"},
      {"\u202D", "?"}, {"\u202E", "?"}, {"\u2066", "?"}, {"\u2067", "?"}, {"\u2068", "?"}, {"\u2069", "?"}};
  for (int low = 0x80; low < 0xA0; ++low) marks.push_back({{'\xC2', static_cast<char>(low)}, "?"});
  return marks;
}

}  // namespace

TextTable::TextTable(std::vector<std::string> head) {
  for (std::string& name : head) {
    right_.push_back(!name.empty() && name.front() == '>');
    if (right_.back()) name.erase(0, 1);
  }
  rows_.push_back(std::move(head));
}

void TextTable::add(std::vector<std::string> row) {
  row.resize(right_.size());
  rows_.push_back(std::move(row));
}

void TextTable::drop_silent() {
  const auto silent = [&](std::size_t column) {
    return std::all_of(rows_.begin() + 1, rows_.end(), [&](const auto& row) {
      return row[column].empty() || row[column] == "-" || row[column] == "0";
    });
  };
  for (std::size_t column = right_.size(); column-- > 0;) {
    if (!silent(column)) continue;
    const auto at = static_cast<std::ptrdiff_t>(column);
    right_.erase(right_.begin() + at);
    for (auto& row : rows_) row.erase(row.begin() + at);
  }
}

std::vector<std::size_t> TextTable::widths() const {
  std::vector<std::size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  return widths;
}

std::string TextTable::str(const std::string& indent, std::size_t width_max) const {
  constexpr std::size_t kGap = 2, kKept = 2;
  std::vector<std::size_t> widths = this->widths();
  std::size_t shown = widths.size(), wide = indent.size();
  for (const std::size_t each : widths) wide += each + kGap;
  if (width_max > 0) {
    while (shown > kKept && wide > width_max + kGap) wide -= widths[--shown] + kGap;
    // A text that does not fit is cut where enough of it stays to be read; a number never is.
    constexpr std::size_t kReadable = 20;
    if (shown < widths.size() && !right_[shown] && width_max >= wide + kReadable) {
      widths[shown] = width_max - wide;
      wide += widths[shown++] + kGap;
    }
    // The widest of what stays gives way.
    while (shown > 0 && wide > width_max + kGap) {
      auto& widest = *std::max_element(widths.begin(), widths.begin() + static_cast<std::ptrdiff_t>(shown));
      if (widest <= 1) break;
      --widest;
      --wide;
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line = indent;
    for (std::size_t i = 0; i < shown; ++i) {
      const std::string cell = i == 0 ? fit_middle(row[i], widths[i]) : fit(row[i], widths[i]);
      const std::string padding(widths[i] - width(cell), ' ');
      if (i > 0) line.append(kGap, ' ');
      line += right_[i] ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  if (shown < rows_[0].size()) {
    std::string names;
    for (std::size_t i = shown; i < rows_[0].size(); ++i) names += (i > shown ? ", " : "") + rows_[0][i];
    out += fit(indent + "(no room for: " + names + ")", width_max) + "\n";
  }
  return out;
}

std::string fit(const std::string& text, std::size_t columns) {
  if (width(text) <= columns) return text;
  std::string cut;
  std::size_t seen = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0u) != 0x80u && ++seen == columns) break;
    cut += c;
  }
  return columns == 0 ? "" : cut + "\u2026";
}

std::string fit_middle(const std::string& text, std::size_t columns) {
  const std::size_t wide = width(text);
  if (wide <= columns || columns < 3) return fit(text, columns);
  const std::size_t front = columns / 2;
  std::size_t end = text.size();
  for (std::size_t left = columns - front - 1; left > 0;
       left -= (static_cast<unsigned char>(text[end]) & 0xC0u) != 0x80u) {
    --end;
  }
  return fit(text, front + 1) + text.substr(end);
}

std::string number(double value, int digits) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  static const auto& obeyed = *new auto(make_obeyed());
  return absl::StrReplaceAll(text, obeyed);
}

}  // namespace plumbline
