// What the rounding of one node adds to functionals that see its result with some cotangent. Elementwise nodes are
// taken piece by piece, so that an error is weighted while the processor's caches hold it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "server/bound/events.h"
#include "server/bound/replay.h"

namespace plumbline {

// A node's result and what it was computed from, in pieces of whole rows; one piece where the node is not elementwise,
// or small, or on a device, whose threads are its own.
class Pieces {
 public:
  Pieces(const Node& node, std::vector<Array> inputs, const Array& value);

  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t index) const { return index * rows_each_ * row_; }  // Its first element.
  Array value(std::int64_t index) const { return of(value_, index); }
  std::vector<Array> inputs(std::int64_t index) const;
  Array of(const Array& whole, std::int64_t index) const;  // Of an array like the result, row-major.

 private:
  Array part(const Array& whole, std::int64_t row_stride, std::int64_t stride, std::int64_t index) const;

  Array value_;
  std::vector<Array> inputs_;
  std::vector<std::pair<std::int64_t, std::int64_t>> strides_;  // Of inputs: from row to row, within one.
  std::int64_t rows_ = 1, row_ = 0, rows_each_ = 1, count_ = 1;
};

class NodeRounding {
 public:
  // `inputs` and `value`: what the replay computed the node from, and got. An arithmetic that is null is not asked for.
  NodeRounding(const Graph& graph, NodeId id, const std::vector<Array>& inputs, const Array& value,
               const Arithmetic* target, const Arithmetic* own);

  // Whether it rounds at all.
  bool of_target() const { return static_cast<bool>(first_target_); }
  bool of_own() const { return static_cast<bool>(first_own_); }

  struct Functional {
    std::size_t probe = 0;
    Array cotangent;             // At the node, in its shape.
    bool target = false;         // Whether it asks of the target's rounding too,
    bool own_by_chance = false;  // of our own not only whole.
    double squares = 0;          // Of its noise, as far as it is known.
  };
  struct Charge {
    double whole = 0;  // sum |a| e, rounded up.
    Noise noise;       // By chance, where that is asked.
  };
  struct Charges {
    Charge target, own;
  };
  std::vector<Charges> charges(const std::vector<Functional>& functionals) const;

 private:
  struct Asked;
  struct Sharing;
  void share(Asked* asked, Sharing* sharing, Charges* charges) const;
  Bound error(const Arithmetic& arithmetic, std::int64_t piece) const;
  Noise noise(const Arithmetic& arithmetic, std::int64_t piece, const Bound& error, const Array& cotangent) const;

  const Graph& graph_;
  const NodeId id_;
  const PrimitiveTraits& primitive_;
  const std::vector<Array> inputs_;
  const Array value_;
  const Pieces pieces_;
  const Arithmetic *const target_, *const own_;
  Bound first_target_, first_own_;  // Errors of the first piece.
};

}  // namespace plumbline
