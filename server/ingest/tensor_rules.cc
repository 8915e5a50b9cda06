#include "server/ingest/tensor_rules.h"

#include "absl/strings/str_join.h"
#include "server/ingest/limits.h"

namespace plumbline {

using absl::StrCat;

Violation read_format(int dtype, const std::string& field, Format* format) {
  if (dtype < 0 || dtype > static_cast<int>(kLastStored)) {
    return invalid(field, "a DType of plumbline.v1", StrCat("the unknown format ", dtype));
  }
  *format = static_cast<Format>(dtype);
  return {};
}

Violation count_elements(const Shape& sizes, const std::string& field, std::int64_t elements_max, std::int64_t* count) {
  std::int64_t product = 1;
  bool empty = false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0) return invalid(StrCat(field, ".sizes[", d, "]"), "a size of 0 or more", sizes[d]);
    if (sizes[d] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, sizes[d], &product) || product > limits::kElementsMax) {
      return invalid(StrCat(field, ".sizes"), StrCat("at most ", limits::kElementsMax, " elements"),
                     StrCat("[", absl::StrJoin(sizes, ", "), "]"));
    }
  }
  *count = empty ? 0 : product;
  if (*count > elements_max) {
    return exhausted(StrCat(field, ".sizes"),
                     StrCat("[", absl::StrJoin(sizes, ", "), "] are ", *count, " elements, more than the ",
                            elements_max, " that can be audited under --memory-limit"));
  }
  return {};
}

Violation read_window(const v1::Tensor& wire, const std::string& field, std::int64_t elements_max, TensorRef* tensor,
                      std::int64_t* elements) {
  if (auto wrong = read_format(wire.dtype(), field + ".dtype", &tensor->format)) return wrong;
  if (wire.sizes_size() > limits::kDimensionsMax) {
    return invalid(field + ".sizes", StrCat("at most ", limits::kDimensionsMax, " dimensions"), wire.sizes_size());
  }
  if (wire.strides_size() != wire.sizes_size()) {
    return invalid(field + ".strides", StrCat(wire.sizes_size(), " strides, one for each size"), wire.strides_size());
  }
  tensor->value = wire.value();
  tensor->view.sizes.assign(wire.sizes().begin(), wire.sizes().end());
  tensor->view.strides.assign(wire.strides().begin(), wire.strides().end());
  tensor->view.offset = wire.offset();
  if (wire.offset() < 0) return invalid(field + ".offset", "an offset of 0 or more", wire.offset());
  for (int d = 0; d < wire.strides_size(); ++d) {
    if (wire.strides(d) < 0) {
      return invalid(StrCat(field, ".strides[", d, "]"), "a stride of 0 or more", wire.strides(d));
    }
  }
  return count_elements(tensor->view.sizes, field, elements_max, elements);
}

Violation check_within(const TensorRef& tensor, std::int64_t elements, const StorageValue& storage,
                       const std::string& field) {
  if (tensor.format != storage.format) {
    return invalid(field + ".dtype", StrCat("format ", static_cast<int>(storage.format), " of value ", tensor.value),
                   static_cast<int>(tensor.format));
  }
  if (elements == 0) return {};
  std::int64_t last = tensor.view.offset;
  for (std::size_t d = 0; d < tensor.view.sizes.size(); ++d) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.view.sizes[d] - 1, tensor.view.strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return invalid(field + ".strides", "a window within its value", "an overflow");
    }
  }
  if (last >= storage.count) {
    return invalid(field, StrCat("a window within the ", storage.count, " elements of value ", tensor.value),
                   StrCat("last element ", last));
  }
  return {};
}

Violation read_tensor(const v1::Tensor& wire, const std::string& field, const Values& values, bool may_be_absent,
                      std::int64_t elements_max, TensorRef* tensor, std::int64_t* elements) {
  *elements = 0;
  if (wire.value() == 0) {
    if (may_be_absent) return {};
    return invalid(field + ".value", "a tensor", "value 0");
  }
  const auto storage = values.find(wire.value());
  if (storage == values.end()) {
    return invalid(field + ".value", "a value of an earlier leaf or operation",
                   StrCat("value ", wire.value(), ", which is unknown so far"));
  }
  if (auto wrong = read_window(wire, field, elements_max, tensor, elements)) return wrong;
  return check_within(*tensor, *elements, storage->second, field);
}

Violation read_part(const v1::Part& wire, const std::string& field, const Shape& sizes, std::int64_t elements_max,
                    TracePart* part) {
  part->whole.assign(wire.whole().begin(), wire.whole().end());
  part->start.assign(wire.start().begin(), wire.start().end());
  // A range of the flattened whole.
  if (part->start.size() == 1 && sizes.size() == 1 && part->whole.size() != 1) {
    std::int64_t elements = 0;
    if (auto wrong = count_elements(part->whole, field + ".whole", elements_max, &elements)) return wrong;
    if (part->start[0] >= 0 && part->start[0] <= elements - sizes[0]) return {};
    return invalid(field + ".start[0]", StrCat("a range of ", sizes[0], " within the whole's ", elements),
                   part->start[0]);
  }
  const std::string dimensions = StrCat(sizes.size(), " sizes, as many as the part has");
  if (part->whole.size() != sizes.size()) return invalid(field + ".whole", dimensions, wire.whole_size());
  if (part->start.size() != sizes.size()) return invalid(field + ".start", dimensions, wire.start_size());
  std::int64_t elements = 0;
  if (auto wrong = count_elements(part->whole, field + ".whole", elements_max, &elements)) return wrong;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (part->start[d] < 0 || part->start[d] > part->whole[d] - sizes[d]) {
      return invalid(StrCat(field, ".start[", d, "]"),
                     StrCat("a part of ", sizes[d], " within the whole's ", part->whole[d]), part->start[d]);
    }
  }
  return {};
}

}  // namespace plumbline
