#include "server/metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

namespace plumbline {
namespace {

// The fields of /proc/self/stat (man 5 proc) that are asked for. The second, the program's name, may hold spaces and
// parentheses, so that fields are counted from its end.
struct Stat {
  double user_ticks = 0, system_ticks = 0, threads = 0, start_ticks = 0, virtual_bytes = 0, resident_pages = 0;
};

std::optional<Stat> read_stat() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end + 1));
  Stat stat;
  std::string field;
  for (int number = 3; number <= 24 && fields >> field; ++number) {
    double* const wanted = number == 14   ? &stat.user_ticks
                           : number == 15 ? &stat.system_ticks
                           : number == 20 ? &stat.threads
                           : number == 22 ? &stat.start_ticks
                           : number == 23 ? &stat.virtual_bytes
                           : number == 24 ? &stat.resident_pages
                                          : nullptr;
    if (wanted != nullptr) *wanted = std::stod(field);
  }
  if (!fields) return std::nullopt;
  return stat;
}

// When the machine started, in Unix time.
std::optional<double> read_boot_time() {
  std::ifstream file("/proc/stat");
  double seconds = 0;
  for (std::string word; file >> word;) {
    if (word == "btime" && file >> seconds) return seconds;
  }
  return std::nullopt;
}

std::optional<double> count_descriptors() {
  std::error_code error;
  double count = -1;  // The directory that is listed is one of them.
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end;
       each.increment(error)) {
    ++count;
  }
  return error ? std::nullopt : std::make_optional(count);
}

prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {name, help, type, {metric}};
}

}  // namespace

std::vector<prometheus::MetricFamily> process_families() {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;
  const auto gauge = [&](const char* name, const char* help, double value) {
    families.push_back(family(name, help, MetricType::Gauge, value));
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (const auto stat = read_stat()) {
    families.push_back(family("process_cpu_seconds_total", "Seconds of user and system time.", MetricType::Counter,
                              (stat->user_ticks + stat->system_ticks) / ticks));
    gauge("process_virtual_memory_bytes", "Virtual memory.", stat->virtual_bytes);
    gauge("process_resident_memory_bytes", "Resident memory.",
          stat->resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
    gauge("process_threads", "Threads.", stat->threads);
    if (const auto boot = read_boot_time()) {
      gauge("process_start_time_seconds", "When the process started, in Unix time.", *boot + stat->start_ticks / ticks);
    }
  }
  if (const auto open = count_descriptors()) gauge("process_open_fds", "Open file descriptors.", *open);
  if (rlimit limit{}; getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    gauge("process_max_fds", "Most file descriptors that may be open.", static_cast<double>(limit.rlim_cur));
  }
  return families;
}

}  // namespace plumbline
