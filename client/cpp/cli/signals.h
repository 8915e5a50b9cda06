// SIGINT and SIGTERM as a call: what runs until it is told to stop.
#pragma once

#include <pthread.h>

#include <csignal>
#include <functional>
#include <thread>

namespace plumbline {

// Holds SIGINT and SIGTERM back from every thread that is made from here on; make it before gRPC makes its own.
class HoldSignals {
 public:
  HoldSignals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~HoldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HoldSignals(const HoldSignals&) = delete;
  HoldSignals& operator=(const HoldSignals&) = delete;

  const sigset_t& signals() const { return signals_; }

 private:
  sigset_t signals_, before_;
};

// Waits for one of the signals held back and calls `stop` once, from a thread of its own. The destructor's SIGUSR1 ends
// the waiting; `stop` is then called too.
class EndOnSignal {
 public:
  EndOnSignal(const HoldSignals& held, std::function<void()> stop)
      : thread_([signals = held.signals(), stop = std::move(stop)] {
          int signal = 0;
          if (sigwait(&signals, &signal) == 0) stop();
        }) {}
  ~EndOnSignal() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  EndOnSignal(const EndOnSignal&) = delete;
  EndOnSignal& operator=(const EndOnSignal&) = delete;

 private:
  std::thread thread_;
};

}  // namespace plumbline
