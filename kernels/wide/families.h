// The families of primitives in wide scalars, which evaluate.cc has the table of.
#pragma once

#include <span>
#include <vector>

#include "kernels/primitive/primitive.h"
#include "kernels/wide/array.h"

namespace plumbline::wide {

using Inputs = std::span<const WideArray>;
using Dims = std::vector<std::int64_t>;

// reduction.cc
WideArray sum(const WideArray& x, const Dims& dims, const Shape& shape);
WideArray extreme(const WideArray& x, const Dims& dims, const Shape& shape, bool largest);  // A NaN wins.
WideArray argmax(const WideArray& x, const Dims& dims, const Shape& shape);
WideArray argsort(const WideArray& x, std::int64_t dim, const Shape& shape);
WideArray cumsum(const WideArray& x, std::int64_t dim);
WideArray variance_rsqrt(const WideArray& x, const Dims& dims, const Shape& shape, Wide eps);
WideArray norm(const WideArray& x, const Dims& dims, const Shape& shape);
WideArray softmax(const WideArray& x, bool of_logarithm);

// product.cc
WideArray product(Inputs in, const Shape& shape);

// movement.cc
WideArray assemble(const Attributes& attributes, const Shape& shape, Inputs in);
WideArray gather_rows(const WideArray& table, const WideArray& index, const Shape& shape);
WideArray scatter_add(const WideArray& source, const WideArray& index, const Shape& shape);

}  // namespace plumbline::wide
