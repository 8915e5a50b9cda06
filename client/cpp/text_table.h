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

  // Each line begins with `indent` and ends without spaces. Where `width` columns of a terminal (0: any number) are too
  // few, columns are left out from the right, and a last line names them. The first two columns stay; names in the
  // first are cut in the middle, since their ends tell them apart.
  std::string str(const std::string& indent = "", std::size_t width = 0) const;

 private:
  std::vector<std::size_t> widths() const;

  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // The head first.
};

// With so many significant digits; "-" for NaN (not asked).
std::string number(double value, int digits = 3);

// At most so many columns; an ellipsis stands for what was cut from the end, or from the middle. Counts code points.
std::string fit(const std::string& text, std::size_t width);
std::string fit_middle(const std::string& text, std::size_t width);

// The text without control characters and marks that turn a line's direction: text of the audited program must neither
// move the cursor of the one who reads it nor show what is not there.
std::string printable(std::string text);

}  // namespace plumbline
