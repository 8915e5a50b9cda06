#include "server/ingest/recipe.h"

#include "server/ingest/frames.h"

namespace plumbline {

std::string recipe(const TraceOp& op) {
  v1::Op wire;
  write_op(op, &wire);
  wire.clear_phase();
  wire.clear_source();
  wire.clear_module();
  wire.clear_decision();
  for (auto& result : *wire.mutable_results()) {
    result.clear_observed();
    if (result.has_tensor()) result.mutable_tensor()->set_value(1);
  }
  return wire.SerializeAsString();
}

}  // namespace plumbline
