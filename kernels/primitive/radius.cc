// Enclosures of elementwise primitives over whole arrays, by their rules (element.h).
#include <cmath>

#include "kernels/primitive/element.h"
#include "kernels/primitive/enclosure.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {

namespace {

template <class R>
struct Radius {
  template <class... Operands>
  PLUMBLINE_HOST_DEVICE double operator()(Operands... operands) const {
    return up(R::radius(operands...));
  }
};
template <class R>
struct OfRadiusAlone {
  PLUMBLINE_HOST_DEVICE double operator()(double r) const { return up(R::radius(0, r, 0)); }
  PLUMBLINE_HOST_DEVICE double operator()(double ra, double rb) const { return up(R::radius(0, ra, 0, rb, 0)); }
};

// A fresh bound of out's shape, f over operands that broadcast to it.
template <class F, class... Arrays>
Bound bound_of(const Array& out, const F& f, const Arrays&... operands) {
  Bound bound{Array::uninitialized(out.shape())};
  loop::map(bound.values, f, operands...);
  return bound;
}

template <class E>
Bound radius_element(const Attributes&, Inputs x, std::span<const Bound> radii, const Array& out) {
  using R = typename E::Radius;
  if (all_exact(radii)) return {};
  Bound bound;
  if constexpr (E::kArity == 1 && R::kRadiiAlone) {
    bound = bound_of(out, OfRadiusAlone<R>{}, radii[0].values);
  } else if constexpr (E::kArity == 1) {
    bound = bound_of(out, Radius<R>{}, x[0], radii[0].values, out);
  } else if constexpr (E::kArity == 2 && R::kRadiiAlone) {
    bound = bound_of(out, OfRadiusAlone<R>{}, radius_of(radii[0]), radius_of(radii[1]));
  } else if constexpr (E::kArity == 2) {
    bound = bound_of(out, Radius<R>{}, x[0], radius_of(radii[0]), x[1], radius_of(radii[1]), out);
  } else {
    bound = bound_of(out, Radius<R>{}, x[0], radius_of(radii[0]), x[1], radius_of(radii[1]), x[2], radius_of(radii[2]),
                     out);
  }
  return bound;
}

struct RadiusOf {
  template <class E>
  auto operator()(E) const {
    return &radius_element<E>;
  }
};

}  // namespace

decltype(PrimitiveTraits::radius) element_radius(Primitive primitive) { return element::visit(primitive, RadiusOf{}); }

}  // namespace plumbline::primitive
