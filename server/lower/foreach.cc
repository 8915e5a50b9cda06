#include "server/lower/foreach.h"

#include <string>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

// The name that the functional operation gives to an argument of its foreach form.
std::string functional_argument(std::string_view base, const std::string& name) {
  if (name == "scalar" || name == "scalars") {
    if (base == "addcmul" || base == "addcdiv") return "value";
    if (base == "lerp") return "weight";
    if (base == "clamp_min") return "min";
    if (base == "clamp_max") return "max";
    return "other";
  }
  if (name == "tensors1") return "end";
  if (name == "weights") return "weight";
  if (name == "ord" && base == "norm") return "p";
  if (name == "other" && base == "clamp_min") return "min";
  if (name == "other" && base == "clamp_max") return "max";
  return name;
}

}  // namespace

std::vector<TraceArgument> element_arguments(const TraceOp& op, std::string_view base, std::size_t i) {
  std::vector<TraceArgument> arguments;
  for (const TraceArgument& argument : op.arguments) {
    TraceArgument element{functional_argument(base, argument.name), None{}};
    const auto pick = [&](const auto& list) {
      if (i >= list.size())
        throw LowerError("argument '" + argument.name + "': more than " + std::to_string(i) +
                         " elements were expected, found " + std::to_string(list.size()));
      return list[i];
    };
    if (const auto* tensors = std::get_if<std::vector<TensorRef>>(&argument.value)) {
      element.value = pick(*tensors);
    } else if (const auto* reals = std::get_if<std::vector<double>>(&argument.value)) {
      element.value = pick(*reals);
    } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&argument.value)) {
      element.value = pick(*integers);
    } else if (argument.name == "scalars" && std::holds_alternative<TensorRef>(argument.value)) {
      throw Unsupported(op.name + ": scalars in a tensor");
    } else {
      element.value = argument.value;
    }
    arguments.push_back(std::move(element));
  }
  return arguments;
}

}  // namespace plumbline
