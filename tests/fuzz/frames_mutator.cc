#include "plumbline/v1/audit.pb.h"
#include "server/lower/lower.h"
#include "tests/fuzz/mutate.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                               unsigned seed) {
  using namespace plumbline;
  static const fuzz::Grammar grammar{0, {&v1::AuditRequest::default_instance()}, lowered_operations()};
  return fuzz::mutate(grammar, data, size, size_max, seed);
}
