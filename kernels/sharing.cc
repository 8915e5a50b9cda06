#include "kernels/sharing.h"

#include "kernels/operations.h"

namespace plumbline {

EventOrder order_events(std::span<const EventOperand> operands, const Array& value, std::int64_t row) {
  return current_operations().order_events(operands, value, row);
}

Array merge_events(const EventOrder& events, const Array& cotangent) {
  return current_operations().merge_events(events, cotangent);
}

}  // namespace plumbline
