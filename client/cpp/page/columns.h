// Verdicts as the page's columns.
#pragma once

#include <map>
#include <string>

#include "client/page/page.pb.h"

namespace plumbline {

class Columns {
 public:
  explicit Columns(page::Steps* steps) : steps_(*steps) {}

  // `drift`: NaN where there is none. Texts beyond `text_bytes` are cut.
  void add(const v1::Verdict& verdict, double drift, std::size_t text_bytes);

 private:
  std::uint32_t text(std::string text);

  page::Steps& steps_;
  std::map<std::string, std::uint32_t> known_;
};

// At most so many bytes, on a boundary of UTF-8; an ellipsis says that there was more.
std::string cut(const std::string& text, std::size_t bytes);

}  // namespace plumbline
