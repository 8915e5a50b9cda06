// Storage values of a trace as nodes. A tensor of the trace is a strided window on a storage value; a value is known by
// the node that was written to it and the window through which it was written.
//
// The common mistake: a node's elements are row-major in the *written* tensor's shape, not in storage order.
#pragma once

#include <map>
#include <string>

#include "server/lower/emit.h"

namespace plumbline {

// The trace itself is at fault, or lacks a content that is needed: not the operation that asks for it.
class TraceError : public LowerError {
 public:
  using LowerError::LowerError;
};

class Storage {
 public:
  explicit Storage(Emitter& emitter) : emitter_(emitter) {}

  // A value whose storage order is the node's row-major order (a leaf).
  void define_flat(ValueId value, Expr node, std::int64_t count);
  // A value of `count` elements made by writing `node` through `written`; the rest is `base`'s, zeros when 0.
  void define(ValueId value, Expr node, const View& written, std::int64_t count, ValueId base);
  // A value whose content nobody modelled or observed. Reading it throws: TraceError with `reason`, or Unsupported when
  // its element type is none that the audit knows.
  void define_unknown(ValueId value, std::string reason, bool unsupported_type);

  bool known(ValueId value) const { return values_.count(value) != 0; }

  // The elements of the window as a node of its shape. Throws TraceError: unknown value, window outside of it.
  Expr read(const TensorRef& tensor);

 private:
  struct Value {
    Expr node;
    View written;
    std::int64_t count = 0;
    ValueId base = 0;
    bool flat = false;  // node's row-major order is storage order.
    std::string unknown;
    bool unsupported_type = false;
  };

  Value& find(ValueId value);
  // A node whose row-major elements are the storage's.
  Expr flat(ValueId value);

  Emitter& emitter_;
  std::map<ValueId, Value> values_;
};

}  // namespace plumbline
