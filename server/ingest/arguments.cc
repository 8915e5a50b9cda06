#include "server/ingest/arguments.h"

#include "server/ingest/limits.h"

namespace plumbline {
namespace {

using absl::StrCat;

Violation check_list(int size, const std::string& field) {
  if (size <= limits::kListMax) return {};
  return invalid(field, StrCat("at most ", limits::kListMax, " elements"), size);
}

Violation read_tensors(const v1::Argument::Tensors& wire, const std::string& field, const Values& values,
                       std::int64_t elements_max, ArgumentValue* value) {
  if (auto wrong = check_list(wire.tensors_size(), field)) return wrong;
  std::vector<TensorRef> tensors(wire.tensors_size());
  for (int i = 0; i < wire.tensors_size(); ++i) {
    std::int64_t elements = 0;
    if (auto wrong = read_tensor(wire.tensors(i), StrCat(field, "[", i, "]"), values, /*may_be_absent=*/true,
                                 elements_max, &tensors[i], &elements)) {
      return wrong;
    }
  }
  *value = std::move(tensors);
  return {};
}

template <typename Element, typename Wire>
Violation read_list(const Wire& wire, const std::string& field, ArgumentValue* value) {
  if (auto wrong = check_list(wire.size(), field)) return wrong;
  *value = std::vector<Element>(wire.begin(), wire.end());
  return {};
}

}  // namespace

Violation check_text(const std::string& text, const std::string& field, bool required) {
  if (required && text.empty()) return invalid(field, "a text", "an empty one");
  if (static_cast<std::int64_t>(text.size()) > limits::kTextBytesMax) {
    return invalid(field, StrCat("at most ", limits::kTextBytesMax, " bytes"), text.size());
  }
  return {};
}

Violation read_argument(const v1::Argument& wire, const std::string& field, const Values& values,
                        std::int64_t elements_max, TraceArgument* argument) {
  argument->name = wire.name();
  if (auto wrong = check_text(wire.name(), field + ".name", false)) return wrong;
  std::int64_t elements = 0;
  switch (wire.value_case()) {
    case v1::Argument::kTensor: {
      if (wire.tensor().value() == 0) return {};
      TensorRef tensor;
      auto wrong = read_tensor(wire.tensor(), field + ".tensor", values, true, elements_max, &tensor, &elements);
      argument->value = std::move(tensor);
      return wrong;
    }
    case v1::Argument::kScalar: {
      ScalarEdge edge;
      auto wrong = read_tensor(wire.scalar(), field + ".scalar", values, false, elements_max, &edge.source, &elements);
      if (!wrong && elements != 1) wrong = invalid(field + ".scalar.sizes", "one element", elements);
      argument->value = std::move(edge);
      return wrong;
    }
    case v1::Argument::kTensors:
      return read_tensors(wire.tensors(), field + ".tensors.tensors", values, elements_max, &argument->value);
    case v1::Argument::kReal:
      argument->value = wire.real();
      return {};
    case v1::Argument::kInteger:
      argument->value = std::int64_t{wire.integer()};
      return {};
    case v1::Argument::kBoolean:
      argument->value = wire.boolean();
      return {};
    case v1::Argument::kText:
      argument->value = wire.text();
      return check_text(wire.text(), field + ".text", false);
    case v1::Argument::kIntegers:
      return read_list<std::int64_t>(wire.integers().values(), field + ".integers.values", &argument->value);
    case v1::Argument::kReals:
      return read_list<double>(wire.reals().values(), field + ".reals.values", &argument->value);
    case v1::Argument::kBooleans:
      return read_list<bool>(wire.booleans().values(), field + ".booleans.values", &argument->value);
    case v1::Argument::kDtype: {
      Format format = Format::kUnknown;
      auto wrong = read_format(wire.dtype(), field + ".dtype", &format);
      argument->value = format;
      return wrong;
    }
    case v1::Argument::kNone:
      return {};
    case v1::Argument::VALUE_NOT_SET:
      // A kind of a newer client cannot be passed over: the operation would be audited without this argument.
      return invalid(field + ".value", "one of the kinds of plumbline.v1.Argument", "none that is known");
  }
  return invalid(field + ".value", "one of the kinds of plumbline.v1.Argument", static_cast<int>(wire.value_case()));
}

}  // namespace plumbline
