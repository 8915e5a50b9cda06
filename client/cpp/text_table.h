// Columns of text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace plumbline {

class TextTable {
 public:
  // `head`: the columns' names; a name that begins with '>' (which is not printed) aligns its column to the right.
  explicit TextTable(std::vector<std::string> head);

  void add(std::vector<std::string> row);  // As many cells as the head has.

  // Without columns in which no cell says anything: all are empty, "-" or "0".
  void drop_silent();

  // Each line after `indent`; no spaces at the ends of lines. Where `width` columns of a terminal (0: any number) are
  // too few, columns are left out from the right, which a last line names; the first two stay and are cut.
  std::string str(const std::string& indent = "", std::size_t width = 0) const;

 private:
  std::vector<std::size_t> widths() const;

  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // The head first.
};

// With so many significant digits; "-" for NaN (not asked).
std::string number(double value, int digits = 3);

// At most so many columns; an ellipsis says that there was more. Counts code points.
std::string fit(const std::string& text, std::size_t width);

// Without control characters: text of the audited program must not move the cursor of the one who reads it.
std::string printable(std::string text);

}  // namespace plumbline
