// One framework operation as a lowering rule sees it: arguments by schema name, and the results it has to give.
//
// A rule is written for the functional operation on single tensors. In-place, `out=` and foreach variants come to it in
// the same form: its output 0 goes where the variant puts it.
#pragma once

#include <complex>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/ingest/trace.h"
#include "server/lower/emit.h"
#include "server/lower/storage.h"

namespace plumbline {

struct Rule;

class Call {
 public:
  Call(Emitter& emitter, Storage& storage, const TraceOp& op, std::string_view base, std::string_view overload,
       std::vector<TraceArgument> arguments, std::vector<std::size_t> outputs, std::map<std::size_t, NodeId>& made,
       std::function<Expr(std::size_t)> observe = nullptr);

  Emitter& emitter() { return emitter_; }
  const TraceOp& op() const { return op_; }
  std::string_view base() const { return base_; }
  std::string_view overload() const { return overload_; }

  // Present and not None.
  bool has(std::string_view name) const;
  bool is_tensor(std::string_view name) const;
  // Whether a tensor's channels, its second dimension, may lie next to each other.
  bool channels_last(std::string_view name) const;
  // Whether the argument is a list of tensors.
  bool is_list(std::string_view name) const;

  // Arguments. A missing or unexpected kind throws Unsupported.
  Expr tensor(std::string_view name);
  std::optional<Expr> optional_tensor(std::string_view name);
  std::vector<Expr> tensors(std::string_view name);
  std::vector<std::optional<Expr>> optional_tensors(std::string_view name);
  // A tensor, a constant in `format` (default: the compute format), or the tensor behind a scalar edge.
  Expr operand(std::string_view name, std::optional<Format> format = std::nullopt);
  // An operand that is copied into the result, not computed with: converted to the result's format at once.
  Expr stored(std::string_view name);
  Expr operand_or(std::string_view name, double otherwise);
  double real(std::string_view name) const;
  // A number that is known while lowering: no tensor, no scalar edge.
  std::optional<double> known_number(std::string_view name) const;
  // A number with an imaginary part, which is written as a list of two.
  std::optional<std::complex<double>> complex_number(std::string_view name) const;
  double real(std::string_view name, double otherwise) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  bool boolean(std::string_view name, bool otherwise) const;
  std::string text(std::string_view name, std::string otherwise) const;
  std::vector<std::int64_t> integers(std::string_view name, std::vector<std::int64_t> otherwise = {}) const;
  // Dimensions of an operand of this rank, wrapped to be non-negative, sorted; all of them when absent or empty.
  std::vector<std::int64_t> dims(std::string_view name, std::size_t rank) const;
  std::size_t dim(std::string_view name, std::size_t rank, std::int64_t otherwise) const;

  // Results.
  bool wants(std::size_t output) const;
  Format result_format(std::size_t output = 0) const;
  Shape result_shape(std::size_t output = 0) const;
  // What was observed of an output, as a leaf that is compared with nothing: where iterations start that end elsewhere.
  Expr observed(std::size_t output);
  // The elements that were observed of an output; nothing where it was not.
  std::optional<std::vector<double>> told(std::size_t output);
  // Gives output i, rounded to its format. The shape must be the one that the trace states. Outputs that the trace
  // does not want are dropped.
  void returns(std::size_t output, Expr node);
  void returns(Expr node) { returns(0, node); }
  // Gives what the operation writes into the `index`th tensor of an argument beside its outputs.
  void writes(std::string_view argument, Expr node, std::size_t index = 0);
  // What `rule`, written for real tensors, makes of the real (0) or imaginary (1) parts of this call's complex tensors,
  // which are lists of one, or the list 'tensors'.
  Expr of_part(const Rule& rule, std::int64_t part);

  // Content of the operation's decision, null when it was not captured.
  PayloadId decision() const { return op_.decision; }
  // Says that `comparison` is what the decision of this operation decided.
  void decides(Expr comparison) { decided_ = comparison.id; }
  std::optional<NodeId> decided() const { return decided_; }
  // Says that output 0 tells which integer `code` became: the output is that integer times `step`, if it lies between
  // `low` and `high`; at these ends it was clamped.
  struct Grid {
    double step, low, high;
  };
  void decides_code(Expr code, const Grid& grid) {
    decided_ = code.id;
    grid_ = grid;
  }
  const std::optional<Grid>& grid() const { return grid_; }
  // Says that the last output, row-major, tells `index`: which elements of the column `table` were chosen. An index
  // lies in [0, size); one more of it is `stride` more in `position`, the chosen elements' rows in the table.
  struct Choice {
    Expr table, position;
    std::int64_t stride, size;
  };
  void decides_index(Expr index, const Choice& choice) {
    decided_ = index.id;
    choice_ = choice;
  }
  const std::optional<Choice>& choice() const { return choice_; }
  // Says that the operation may have added up in more than one way, of which the widest was taken.
  void leave_untold() { untold_ = true; }
  bool untold() const { return untold_; }

  [[noreturn]] void unsupported(const std::string& what) const;

 private:
  const ArgumentValue* find(std::string_view name) const;
  void give(std::size_t result, Expr node);

  Emitter& emitter_;
  Storage& storage_;
  const TraceOp& op_;
  std::string_view base_, overload_;
  std::vector<TraceArgument> arguments_;
  std::vector<std::size_t> outputs_;
  std::map<std::size_t, NodeId>& made_;
  std::function<Expr(std::size_t)> observe_;  // It is called with the index of the result.
  std::optional<NodeId> decided_;
  std::optional<Grid> grid_;
  std::optional<Choice> choice_;
  bool untold_ = false;
};

}  // namespace plumbline
