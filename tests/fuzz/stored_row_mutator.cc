#include "plumbline/v1/archive.pb.h"
#include "plumbline/v1/verdict.pb.h"
#include "tests/fuzz/mutate.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                               unsigned seed) {
  using namespace plumbline;
  static const fuzz::Grammar grammar{
      0,
      {&v1::Verdict::default_instance(), &v1::Verdict::default_instance(), &v1::TraceHeader::Memory::default_instance(),
       &v1::TraceHeader::Memory::default_instance()},
      {}};
  return fuzz::mutate(grammar, data, size, size_max, seed);
}
