// What the kernel says of this process, under the names that Prometheus's client libraries share: process_*.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace plumbline {

// process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes, process_start_time_seconds,
// process_open_fds, process_max_fds and process_threads. A family whose file in /proc cannot be read is left out.
// Thread-safe.
std::vector<prometheus::MetricFamily> process_families();

}  // namespace plumbline
