#include "server/lower/call.h"

#include <algorithm>
#include <cmath>

#include "server/lower/integer.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

std::optional<double> number(const ArgumentValue& value) {
  if (const auto* x = std::get_if<double>(&value)) return *x;
  if (const auto* x = std::get_if<std::int64_t>(&value)) return static_cast<double>(*x);
  if (const auto* x = std::get_if<bool>(&value)) return *x ? 1.0 : 0.0;
  return std::nullopt;
}

std::int64_t wrapped(std::int64_t dim, std::size_t rank) {
  const auto n = std::max<std::int64_t>(1, static_cast<std::int64_t>(rank));
  if (dim < -n || dim >= n)
    throw LowerError("a dimension below " + std::to_string(n) + " was expected, found " + std::to_string(dim));
  return dim < 0 ? dim + n : dim;
}

// The window on the real or imaginary parts of a complex tensor that is viewed as real numbers.
TensorRef part_of(TensorRef tensor, std::int64_t part) {
  View& view = tensor.view;
  if (view.sizes.empty() || view.sizes.back() != 2 || view.strides.size() != view.sizes.size())
    throw Unsupported("a complex tensor as pairs of numbers was expected, found shape " + to_string(view.sizes));
  view.offset += part * view.strides.back();
  view.sizes.pop_back();
  view.strides.pop_back();
  return tensor;
}

// Runs `read`, and names the argument in what goes wrong.
template <class Read>
auto in_argument(std::string_view name, Read read) {
  const std::string place = "argument '" + std::string(name) + "': ";
  try {
    return read();
  } catch (const TraceError& error) {
    throw TraceError(place + error.what());
  } catch (const LowerError& error) {
    throw LowerError(place + error.what());
  }
}

}  // namespace

Call::Call(Emitter& emitter, Storage& storage, const TraceOp& op, std::string_view base, std::string_view overload,
           std::vector<TraceArgument> arguments, std::vector<std::size_t> outputs, std::map<std::size_t, NodeId>& made,
           std::function<Expr(std::size_t)> observe)
    : emitter_(emitter),
      storage_(storage),
      op_(op),
      base_(base),
      overload_(overload),
      arguments_(std::move(arguments)),
      outputs_(std::move(outputs)),
      made_(made),
      observe_(std::move(observe)) {}

void Call::unsupported(const std::string& what) const { throw Unsupported(op_.name + ": " + what); }

const ArgumentValue* Call::find(std::string_view name) const {
  for (const TraceArgument& argument : arguments_)
    if (argument.name == name) return std::holds_alternative<None>(argument.value) ? nullptr : &argument.value;
  return nullptr;
}

bool Call::has(std::string_view name) const {
  const ArgumentValue* value = find(name);
  if (!value) return false;
  const auto* tensor = std::get_if<TensorRef>(value);
  return !tensor || tensor->value != 0;
}

bool Call::is_tensor(std::string_view name) const {
  const ArgumentValue* value = find(name);
  const auto* tensor = value ? std::get_if<TensorRef>(value) : nullptr;
  return tensor && tensor->value != 0;
}

bool Call::channels_last(std::string_view name) const {
  const ArgumentValue* value = find(name);
  const auto* tensor = value ? std::get_if<TensorRef>(value) : nullptr;
  return tensor && tensor->view.sizes.size() >= 4 && tensor->view.strides[1] == 1;
}

bool Call::is_list(std::string_view name) const {
  const ArgumentValue* value = find(name);
  return value && std::holds_alternative<std::vector<TensorRef>>(*value);
}

Expr Call::tensor(std::string_view name) {
  const auto given = optional_tensor(name);
  if (!given) unsupported("argument '" + std::string(name) + "' is no tensor");
  return *given;
}

std::optional<Expr> Call::optional_tensor(std::string_view name) {
  const ArgumentValue* value = find(name);
  if (!value) return std::nullopt;
  const auto* tensor = std::get_if<TensorRef>(value);
  if (!tensor) unsupported("argument '" + std::string(name) + "' is no tensor");
  if (tensor->value == 0) return std::nullopt;
  return in_argument(name, [&] { return storage_.read(*tensor); });
}

std::vector<std::optional<Expr>> Call::optional_tensors(std::string_view name) {
  const ArgumentValue* value = find(name);
  if (!value) return {};
  const auto* list = std::get_if<std::vector<TensorRef>>(value);
  if (!list) unsupported("argument '" + std::string(name) + "' is no list of tensors");
  std::vector<std::optional<Expr>> read;
  for (const TensorRef& tensor : *list) {
    if (tensor.value == 0) {
      read.push_back(std::nullopt);
    } else {
      read.push_back(in_argument(name, [&] { return storage_.read(tensor); }));
    }
  }
  return read;
}

std::vector<Expr> Call::tensors(std::string_view name) {
  std::vector<Expr> read;
  for (const auto& tensor : optional_tensors(name)) {
    if (!tensor) unsupported("argument '" + std::string(name) + "' holds an absent tensor");
    read.push_back(*tensor);
  }
  return read;
}

Expr Call::operand(std::string_view name, std::optional<Format> format) {
  const ArgumentValue* value = find(name);
  if (!value) unsupported("argument '" + std::string(name) + "' is missing");
  if (const auto* edge = std::get_if<ScalarEdge>(value))
    return in_argument(name, [&] { return reshape(storage_.read(edge->source), {}); });
  if (std::holds_alternative<TensorRef>(*value)) return tensor(name);
  const auto scalar = number(*value);
  if (!scalar) unsupported("argument '" + std::string(name) + "' is no tensor or number");
  const Format held = format.value_or(emitter_.compute());
  const auto* whole = std::get_if<std::int64_t>(value);
  return whole && is_integer(held) ? whole_constant(emitter_, *whole, held) : emitter_.constant(*scalar, held);
}

Expr Call::stored(std::string_view name) {
  const Format format = result_format();
  const auto value = known_number(name);
  if (!value || is_float(format)) return converted(operand(name, format), format);
  if (format == Format::kBool) return emitter_.constant(*value != 0 ? 1 : 0, format);
  if (std::isfinite(*value) && *value != std::trunc(*value)) return emitter_.constant(std::trunc(*value), format);
  return wrapped(operand(name, format), format);
}

Expr Call::operand_or(std::string_view name, double otherwise) {
  return has(name) ? operand(name) : emitter_.constant(otherwise);
}

std::optional<double> Call::known_number(std::string_view name) const {
  const ArgumentValue* value = find(name);
  return value ? number(*value) : std::nullopt;
}

std::optional<std::complex<double>> Call::complex_number(std::string_view name) const {
  const ArgumentValue* value = find(name);
  const auto* parts = value ? std::get_if<std::vector<double>>(value) : nullptr;
  if (!parts || parts->size() != 2) return std::nullopt;
  return std::complex<double>((*parts)[0], (*parts)[1]);
}

double Call::real(std::string_view name) const {
  const auto scalar = known_number(name);
  if (!scalar) unsupported("argument '" + std::string(name) + "' is no constant number");
  return *scalar;
}

double Call::real(std::string_view name, double otherwise) const { return find(name) ? real(name) : otherwise; }

std::int64_t Call::integer(std::string_view name, std::int64_t otherwise) const {
  const ArgumentValue* value = find(name);
  if (!value) return otherwise;
  if (const auto* x = std::get_if<std::int64_t>(value)) return *x;
  if (const auto* x = std::get_if<bool>(value)) return *x ? 1 : 0;
  unsupported("argument '" + std::string(name) + "' is no integer");
}

bool Call::boolean(std::string_view name, bool otherwise) const { return integer(name, otherwise ? 1 : 0) != 0; }

std::string Call::text(std::string_view name, std::string otherwise) const {
  const ArgumentValue* value = find(name);
  if (!value) return otherwise;
  if (const auto* x = std::get_if<std::string>(value)) return *x;
  unsupported("argument '" + std::string(name) + "' is no text");
}

std::vector<std::int64_t> Call::integers(std::string_view name, std::vector<std::int64_t> otherwise) const {
  const ArgumentValue* value = find(name);
  if (!value) return otherwise;
  if (const auto* x = std::get_if<std::vector<std::int64_t>>(value)) return *x;
  if (const auto* x = std::get_if<std::int64_t>(value)) return {*x};
  // Empty lists carry no element type.
  if (const auto* x = std::get_if<std::vector<double>>(value); x && x->empty()) return {};
  if (const auto* x = std::get_if<std::vector<bool>>(value)) return {x->begin(), x->end()};
  if (const auto* x = std::get_if<std::vector<TensorRef>>(value); x && x->empty()) return {};
  unsupported("argument '" + std::string(name) + "' is no list of integers");
}

std::vector<std::int64_t> Call::dims(std::string_view name, std::size_t rank) const {
  std::vector<std::int64_t> result;
  for (std::int64_t dim : integers(name))
    if (rank > 0) result.push_back(wrapped(dim, rank));
  if (integers(name).empty())
    for (std::size_t d = 0; d < rank; ++d) result.push_back(static_cast<std::int64_t>(d));
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::size_t Call::dim(std::string_view name, std::size_t rank, std::int64_t otherwise) const {
  return static_cast<std::size_t>(wrapped(integer(name, otherwise), rank));
}

Expr Call::observed(std::size_t output) {
  if (!observe_ || !wants(output)) unsupported("result " + std::to_string(output) + " was not observed");
  return observe_(outputs_[output]);
}

std::optional<std::vector<double>> Call::told(std::size_t output) {
  if (!observe_ || !wants(output) || op_.results[outputs_[output]].observed == 0) return std::nullopt;
  const NodeId node = observed(output).id;
  const GraphLeaf& leaf = emitter_.graph().leaves.back();
  std::vector<double> values(static_cast<std::size_t>(count(emitter_.graph().nodes[node].shape)));
  decode(leaf.format, leaf.bytes->data(), static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

bool Call::wants(std::size_t output) const {
  return output < outputs_.size() && op_.results[outputs_[output]].tensor.value != 0;
}

Format Call::result_format(std::size_t output) const {
  if (output >= outputs_.size()) unsupported("has no result " + std::to_string(output));
  return op_.results[outputs_[output]].tensor.format;
}

Shape Call::result_shape(std::size_t output) const {
  if (output >= outputs_.size()) unsupported("has no result " + std::to_string(output));
  return op_.results[outputs_[output]].tensor.view.sizes;
}

void Call::give(std::size_t result, Expr node) {
  const TensorRef& expected = op_.results[result].tensor;
  if (expected.value == 0) return;
  if (node.shape() != expected.view.sizes)
    throw LowerError("result " + std::to_string(result) + ": shape " + to_string(node.shape()) +
                     " was expected from the arguments, found " + to_string(expected.view.sizes));
  if (is_integer(expected.format)) node = wrapped(node, expected.format);
  made_[result] = emitter_.rounded(node, expected.format).id;
}

void Call::returns(std::size_t output, Expr node) {
  if (output < outputs_.size()) give(outputs_[output], node);
}

void Call::writes(std::string_view argument, Expr node, std::size_t index) {
  for (std::size_t i = 0; i < op_.results.size(); ++i) {
    if (op_.results[i].argument != argument) continue;
    if (index-- == 0) {
      give(i, node);
      return;
    }
  }
}

Expr Call::of_part(const Rule& rule, std::int64_t part) {
  TraceOp op = op_;
  std::vector<TraceArgument> arguments = arguments_;
  for (TraceArgument& argument : arguments) {
    const auto* tensor = std::get_if<TensorRef>(&argument.value);
    if (tensor && tensor->value != 0 && is_float(tensor->format)) unsupported("real and complex tensors together");
    auto* list = std::get_if<std::vector<TensorRef>>(&argument.value);
    if (!list || argument.name == "indices") continue;
    for (TensorRef& item : *list) item = part_of(item, part);
    if (argument.name == "tensors") continue;
    if (list->size() != 1) unsupported("argument '" + argument.name + "' is no complex tensor");
    argument.value = TensorRef(list->front());
  }
  for (const std::size_t i : outputs_) op.results[i].tensor = part_of(op.results[i].tensor, part);
  std::map<std::size_t, NodeId> made;
  Call call(emitter_, storage_, op, rule.name, overload_, std::move(arguments), outputs_, made);
  rule.lower(call);
  if (outputs_.empty() || !made.contains(outputs_[0])) unsupported("a part without a result");
  return {&emitter_, made[outputs_[0]]};
}

}  // namespace plumbline
