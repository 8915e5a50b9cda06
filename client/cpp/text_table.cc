#include "client/cpp/text_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace plumbline {
namespace {

// Code points, which is near enough to columns for names of programs.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0u) != 0x80u; }));
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
      const std::string cell = fit(row[i], widths[i]);
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
  return text;
}

}  // namespace plumbline
