#include "tests/emulation/counts.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace emulation {
namespace {

constexpr int kDepth = 24, kPlaces = 40;
constexpr std::array kNames = {"launches", "sends", "fetches", "waits", "allocations", "integer_products"};
using Callers = std::array<void*, kDepth>;

// The program's own functions among the callers, the innermost first.
std::string names_of(const Callers& callers) {
  std::string names;
  for (void* const caller : callers) {
    Dl_info info;
    if (caller == nullptr || dladdr(caller, &info) == 0 || info.dli_sname == nullptr) continue;
    int status = 0;
    char* const name = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    if (status == 0) names += ' ' + std::string(name, std::min<std::size_t>(100, std::string(name).find('(')));
    std::free(name);
  }
  return names;
}

class Counts {
 public:
  ~Counts() {
    if (path_ == nullptr) return;
    std::FILE* const file = std::fopen(path_, "w");
    if (file == nullptr) return;
    for (std::size_t kind = 0; kind < kNames.size(); ++kind) {
      std::fprintf(file, "%s %lu\n", kNames[kind], totals_[kind]);
      std::vector<std::pair<unsigned long, const Callers*>> often;
      for (const auto& [callers, number] : places_[kind]) often.emplace_back(number, &callers);
      std::ranges::sort(often, std::greater());
      often.resize(std::min<std::size_t>(often.size(), kPlaces));
      for (const auto& [number, callers] : often) std::fprintf(file, "  %lu%s\n", number, names_of(*callers).c_str());
    }
    std::fclose(file);
  }

  void add(Kind kind) {
    if (path_ == nullptr) return;
    Callers callers{};
    backtrace(callers.data(), kDepth);
    const std::lock_guard lock(mutex_);
    ++totals_[static_cast<std::size_t>(kind)];
    ++places_[static_cast<std::size_t>(kind)][callers];
  }

 private:
  const char* const path_ = std::getenv("PLUMBLINE_EMULATION_COUNTS");
  std::mutex mutex_;
  std::array<unsigned long, kNames.size()> totals_{};
  std::array<std::map<Callers, unsigned long>, kNames.size()> places_;
};

}  // namespace

void count(Kind kind) {
  static Counts counts;
  counts.add(kind);
}

}  // namespace emulation
