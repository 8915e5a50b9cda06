// What a process asked of its devices, written to the file that PLUMBLINE_EMULATION_COUNTS names when it ends: a line
// `KIND NUMBER` for each, and below it `NUMBER CALLERS` for the places in the program that asked most often.
#pragma once

namespace emulation {

enum class Kind { kLaunch, kSend, kFetch, kWait, kAllocation, kIntegerProduct };

void count(Kind kind);

}  // namespace emulation
