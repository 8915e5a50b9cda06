// Storage values of a trace as nodes. A tensor of the trace is a strided window on a storage value; a value is known by
// the node that was written to it and the window through which it was written.
//
// The common mistake: a node's elements are row-major in the *written* tensor's shape, not in storage order.
//
// A step may write one tensor a hundred thousand times in place. So nothing here recurses along writes, a read looks
// behind writes that do not concern it, and how far it looks is bounded: beyond that the storage is put together once,
// for all reads that follow.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/lower/emit.h"

namespace plumbline {

// The trace itself is at fault, or lacks a content that is needed: not the operation that asks for it.
class TraceError : public LowerError {
 public:
  using LowerError::LowerError;
};

// A result that no node computes and nobody observed.
struct MissingResult {
  WantedResult wanted;
  std::string what;  // "result 0 of 'custom::thing.default' (train.py:41) is needed: ..."
};

class Storage {
 public:
  explicit Storage(Emitter& emitter) : emitter_(emitter) {}

  // A value whose storage order is the node's row-major order (a leaf).
  void define_flat(ValueId value, Expr node, std::int64_t count);
  // A value of `count` elements made by writing `node` through `written`; the rest is `base`'s, zeros when 0.
  void define(ValueId value, Expr node, const View& written, std::int64_t count, ValueId base);
  // A value of an element type that the audit does not know. Reading it throws Unsupported with `reason`.
  void define_unknown(ValueId value, std::string reason);
  // A value whose content is missing. Reading it notes that, and gives a leaf without content in its place, so that
  // lowering can go on and find what else is missing.
  void define_missing(ValueId value, Format format, std::int64_t count, MissingResult result);

  bool known(ValueId value) const { return values_.count(value) != 0; }
  // The first missing result that reading the window would note; null: none.
  const MissingResult* missing(const TensorRef& tensor) const;
  // The missing results that were read since the last call.
  std::vector<MissingResult> take_missing();

  // The elements of the window as a node of its shape. Throws TraceError: unknown value, window outside of it.
  Expr read(const TensorRef& tensor);

  // Forgets the nodes that were made since Emitter::begin(), which are about to be taken back.
  void roll_back();

 private:
  struct Value {
    Expr node;
    std::optional<View> written = std::nullopt;  // Nothing: the node's row-major order is storage order.
    std::int64_t count = 0;
    ValueId base = 0;
    std::optional<Expr> whole = std::nullopt;  // A node whose row-major elements are the storage's.
    std::string unknown;
    std::optional<MissingResult> missing = std::nullopt;
    Format format = Format::kUnknown;  // The format of what is missing.
    ValueId missing_below = 0;         // What is missing among the values that this one was written upon; 0: nothing.
  };

  const Value& find(ValueId value) const;
  // The node that holds all of the storage, if one does already; of what is missing a leaf without content.
  std::optional<Expr> known_whole(const Value& value);
  // The storage put together from all writes since the last that is known whole. Kept: the next read starts from it.
  Expr whole(ValueId id);
  // The window put together from what its elements were written with; nothing: `whole` is as cheap.
  std::optional<Expr> pieced(const Value& newest, const View& view);

  Emitter& emitter_;
  std::unordered_map<ValueId, Value> values_;
  std::vector<ValueId> put_together_;  // Values whose `whole` was made later than they were, in that order.
  std::vector<MissingResult> read_missing_;
};

}  // namespace plumbline
