// Operands of pointwise loops, which hold all of them in one format (ATen: TensorIterator).
#pragma once

#include <initializer_list>
#include <string_view>

#include "server/lower/call.h"

namespace plumbline {

bool reduced_precision(Format format);

// The format that the loop converts its operands to: the result's, or a wider one that some tensor among `names` has.
// Numbers and tensors without dimensions take the others'. The compute format where these hold no floats.
Format common_format(Call& call, std::initializer_list<std::string_view> names = {"self", "other"});

// The same of a comparison of `self` and `other`.
Format compared_format(Call& call);

// x in `format`, where that holds less.
Expr narrowed(Expr x, Format format);

// An operand as the loop holds it. Numbers that Python gives are taken as they are.
Expr held(Call& call, std::string_view name, Format common);

// The same of a factor or a divisor on the right. Without dimensions, the CPU's 16-bit loops compute with it in fp32;
// devices round it as they do any other (native/cpu/BinaryOpsKernel.cpp, native/cuda/Loops.cuh). `number`: the format
// that a number takes.
Expr held_on_the_right(Call& call, std::string_view name, Format common, std::optional<Format> number = std::nullopt);

}  // namespace plumbline
