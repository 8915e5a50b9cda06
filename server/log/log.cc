#include "server/log/log.h"

#include <spdlog/formatter.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace plumbline {
namespace {

constexpr char kEventMark = '\x01';  // Begins the payload of an event that is written as JSON: its fields follow.

std::atomic<LogFormat> log_format{LogFormat::kText};

// What stands between quotes, in JSON and in text: nothing that ends a line or the quotes, ASCII alone.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", byte);
      out += code;
    }
  }
  return out;
}

bool is_plain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isgraph(static_cast<unsigned char>(c)) != 0 && c != '"' && c != '=' && c != '\\';
  });
}

std::string as_text(std::string_view event, const LogFields& fields) {
  std::string line(event);
  for (const auto& [name, value] : fields) {
    line += ' ';
    line += name;
    line += '=';
    line += is_plain(value) ? value : '"' + escaped(value) + '"';
  }
  return line;
}

std::string as_json(std::string_view event, const LogFields& fields) {
  std::string line = kEventMark + std::string("\"event\":\"") + escaped(event) + '"';
  for (const auto& [name, value] : fields) {
    line += ",\"";
    line += name;
    line += "\":\"" + escaped(value) + '"';
  }
  return line;
}

// {"time":"2026-11-24T09:00:00.123Z","level":"info","event":"...",...}; a line of text is {..., "message":"..."}.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(message.time);
    const auto milliseconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch()).count() % 1000;
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char time[48];
    const std::size_t size = std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    std::snprintf(time + size, sizeof time - size, ".%03dZ", static_cast<int>(milliseconds));
    const auto level = spdlog::level::to_string_view(message.level);
    std::string_view payload(message.payload.data(), message.payload.size());
    std::string line =
        std::string("{\"time\":\"") + time + "\",\"level\":\"" + std::string(level.data(), level.size()) + "\",";
    if (!payload.empty() && payload.front() == kEventMark) {
      line += payload.substr(1);
    } else {
      line += "\"message\":\"" + escaped(payload) + '"';
    }
    line += "}\n";
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

// How many lines of an event were written lately.
class Limiter {
 public:
  // False: no more of this event now. `suppressed` is how many were left out before this one.
  bool admit(std::string_view event, std::size_t* suppressed) {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    Window& window = windows_[std::string(event)];
    if (window.lines == 0 || now - window.begun >= std::chrono::seconds(kEventSeconds)) {
      window.begun = now;
      window.lines = 0;
    }
    if (window.lines >= kEventLinesMax) {
      ++window.suppressed;
      return false;
    }
    ++window.lines;
    *suppressed = std::exchange(window.suppressed, 0);
    return true;
  }

 private:
  struct Window {
    std::chrono::steady_clock::time_point begun;
    std::size_t lines = 0, suppressed = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Window> windows_;  // The key is an event, of which there are few.
};

}  // namespace

void set_log(LogFormat format, LogLevel level_min) {
  log_format = format;
  if (format == LogFormat::kJson) spdlog::set_formatter(std::make_unique<JsonFormatter>());
  spdlog::set_level(spdlog_level(level_min));
  spdlog::flush_on(spdlog::level::info);  // A line is there when its event is over.
}

void log_event(LogLevel level, std::string_view event, LogFields fields) {
  if (!spdlog::should_log(spdlog_level(level))) return;
  static Limiter* const limiter = new Limiter;  // Threads may log until the very end.
  std::size_t suppressed = 0;
  if (!limiter->admit(event, &suppressed)) return;
  if (suppressed > 0) fields.emplace_back("suppressed", std::to_string(suppressed));
  const std::string line = log_format == LogFormat::kJson ? as_json(event, fields) : as_text(event, fields);
  spdlog::log(spdlog_level(level), "{}", line);
}

}  // namespace plumbline
