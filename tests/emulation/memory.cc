#include "tests/emulation/memory.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace emulation {
namespace {

std::mutex mutex;                    // Of the map: the handler holds it in threads that do not.
std::map<char*, std::size_t> taken;  // The key is the first byte.
thread_local int works = 0;          // How many calls of `touch` the thread is in.
thread_local std::vector<std::pair<char*, std::size_t>> opened;
struct sigaction before;

void complain(const char* what) {
  static_cast<void>(!write(STDERR_FILENO, what, __builtin_strlen(what)));
  void* frames[48];
  backtrace_symbols_fd(frames, backtrace(frames, 48), STDERR_FILENO);
  std::abort();
}

// A fault comes from an access of the thread itself, never from within what this file does.
void faulted(int signal, siginfo_t* info, void* context) {
  auto* const at = static_cast<char*>(info->si_addr);
  {
    const std::lock_guard lock(mutex);
    auto found = taken.upper_bound(at);
    if (found != taken.begin() && at < (--found)->first + found->second) {
      if (works == 0) complain("emulated device: the host touched the device's memory\n");
      opened.push_back(*found);
      mprotect(found->first, found->second, PROT_READ | PROT_WRITE);
      return;
    }
  }
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  sigaction(signal, &before, nullptr);  // The access comes again, and is not ours.
}

}  // namespace

void* take_pages(std::size_t bytes) {
  static const bool listens = [] {
    void* frame;
    backtrace(&frame, 1);  // Loads what a handler could not.
    struct sigaction action {};
    action.sa_sigaction = faulted;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return sigaction(SIGSEGV, &action, &before) == 0;
  }();
  if (!listens) return nullptr;
  void* const pages = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  const std::lock_guard lock(mutex);
  taken[static_cast<char*>(pages)] = bytes;
  return pages;
}

void give_pages(void* pages, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  taken.erase(static_cast<char*>(pages));
  munmap(pages, bytes);
}

void touch(const std::function<void()>& work) {
  ++works;
  work();
  if (--works > 0) return;
  for (const auto& [begin, bytes] : opened) mprotect(begin, bytes, PROT_NONE);
  opened.clear();
}

}  // namespace emulation
