// What must hold of a tensor on the wire, and of the storage values that tensors are windows on.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "plumbline/v1/trace.pb.h"
#include "server/ingest/trace.h"
#include "server/ingest/violation.h"

namespace plumbline {

// A storage value that a leaf or a result has defined.
struct StorageValue {
  Format format = Format::kUnknown;
  std::int64_t count = 0;
  bool leaf = false;
};

using Values = std::unordered_map<ValueId, StorageValue>;

// DType to Format; both enumerations have the same numbers. A number that is neither is an error.
Violation read_format(int dtype, const std::string& field, Format* format);

// Elements of a window with these sizes; an error if there are more than kElementsMax or more than elements_max (which
// fp64 values in memory would bear).
Violation count_elements(const Shape& sizes, const std::string& field, std::int64_t elements_max, std::int64_t* count);

// Reads a tensor that is present (value above 0): sizes, strides, offset, format. Does not look at its storage.
Violation read_window(const v1::Tensor& wire, const std::string& field, std::int64_t elements_max, TensorRef* tensor,
                      std::int64_t* elements);

// The window lies within its storage and has its format.
Violation check_within(const TensorRef& tensor, std::int64_t elements, const StorageValue& storage,
                       const std::string& field);

// Reads a tensor on a value that exists; value 0 gives an absent tensor where `may_be_absent`.
Violation read_tensor(const v1::Tensor& wire, const std::string& field, const Values& values, bool may_be_absent,
                      std::int64_t elements_max, TensorRef* tensor, std::int64_t* elements);

// Reads a box of these sizes in a whole.
Violation read_part(const v1::Part& wire, const std::string& field, const Shape& sizes, std::int64_t elements_max,
                    TracePart* part);

}  // namespace plumbline
