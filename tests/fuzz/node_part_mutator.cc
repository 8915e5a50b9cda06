#include "plumbline/v1/node_part.pb.h"
#include "tests/fuzz/mutate.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                               unsigned seed) {
  using namespace plumbline;
  static const fuzz::Grammar grammar{
      1, {&v1::NodePart::default_instance()}, {"all_reduce", "all_to_all_flat", "broadcast", "sum", "avg", "max"}};
  return fuzz::mutate(grammar, data, size, size_max, seed);
}
