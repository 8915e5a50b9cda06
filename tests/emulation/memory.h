// A device's memory, which the host cannot reach: a host that reads or writes there ends with a word of where. Between
// two calls of `touch` each piece opens where work reaches it first. One thread at a time.
#pragma once

#include <cstddef>
#include <functional>

namespace emulation {

// Whole pages, closed; null where there are none.
void* take_pages(std::size_t bytes);
void give_pages(void* pages, std::size_t bytes);

// Runs what is the device's work.
void touch(const std::function<void()>& work);

}  // namespace emulation
