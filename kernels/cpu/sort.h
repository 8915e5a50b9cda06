// Orders of numbers on the host (kernels/loop.h says what each does).
#pragma once

#include "kernels/array.h"

namespace plumbline::cpu {

void argsort(const Array& x, Array& order);
void group(const Array& row, Array& start, Array& order);

}  // namespace plumbline::cpu
