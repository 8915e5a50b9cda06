// What the daemon tells its operators: events with fields, as text ("run_opened run=default/job/r/0 owner=uid:1000") or
// as one JSON object a line. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plumbline {

enum class LogFormat { kText, kJson };
enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Sets the format of every line from now on, those of others too. Call it before there are threads.
void set_log(LogFormat format, LogLevel level_min);

using LogFields = std::vector<std::pair<std::string_view, std::string>>;

// Lines of one event within kEventSeconds; what is past it is left out, and the event's next line counts it as
// "suppressed". So whoever can cause an event cannot fill a disk with it.
inline constexpr std::size_t kEventLinesMax = 100;
inline constexpr int kEventSeconds = 10;

void log_event(LogLevel level, std::string_view event, LogFields fields);

}  // namespace plumbline
