// Columns of text.
#pragma once

#include <string>
#include <vector>

namespace plumbline {

class TextTable {
 public:
  // `head`: the columns' names; a name that begins with '>' (which is not printed) aligns its column to the right.
  explicit TextTable(std::vector<std::string> head);

  void add(std::vector<std::string> row);  // As many cells as the head has.

  // Each line after `indent`; no spaces at the ends of lines.
  std::string str(const std::string& indent = "") const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // The head first.
};

// With so many significant digits; "-" for NaN (not asked).
std::string number(double value, int digits = 3);

// Without control characters: text of the audited program must not move the cursor of the one who reads it.
std::string printable(std::string text);

}  // namespace plumbline
