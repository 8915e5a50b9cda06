// Frames of streams, in any order: assembled, joined as the ranks of one run, judged by themselves and against each
// other. An input is what plumbline.dump writes: frames, each after its length.
#include "tests/fuzz/pieces.h"
#include "tests/fuzz/steps.h"
#include "tests/fuzz/target.h"

namespace plumbline::fuzz {

PLUMBLINE_FUZZ_TARGET(frames) {
  if (input.size() > kInputMax) return;
  const Traces traces = assemble(messages<v1::AuditRequest>(input));
  if (traces.empty()) return;
  TraceRecord record;
  record.trace = traces.front();
  if (traces.size() > 1) {
    record.reference = traces.back();
    record.reference_name = "run reference step 0";
    TraceRecord joined;
    joined.trace = join(traces, traces.front()->identity.step % 2 == 1);
    if (joined.trace != nullptr) judge(joined);
  }
  judge(record);
}

}  // namespace plumbline::fuzz
