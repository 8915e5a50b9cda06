// Complex numbers as two real ones, while an operation is lowered.
#pragma once

#include "server/lower/call.h"

namespace plumbline {

struct Complex {
  Expr re;
  std::optional<Expr> im;  // Absent: a real number.
};

Complex operator+(const Complex& a, const Complex& b);
Complex operator-(const Complex& x);
Complex operator-(const Complex& a, const Complex& b);
Complex operator*(const Complex& a, const Complex& b);
Complex operator/(const Complex& a, const Complex& b);

// An argument: a complex tensor or number, or a real one.
Complex complex_operand(Call& call, std::string_view name);
// The imaginary part, which is 0 of a real number.
Expr imaginary(Call& call, const Complex& x);
// Gives a complex output 0.
void give(Call& call, const Complex& x);
// Two arrays along a dimension, one after the other.
Expr joined(Expr a, Expr b, std::size_t dim);

}  // namespace plumbline
