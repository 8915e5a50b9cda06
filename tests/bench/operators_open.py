"""Operators of which some samples are left over, opaque or inconclusive, and why. The report counts them all the same;
what is left over and does not stand here fails it."""

LEFT_OVER = "what is left over, by operator: the operations that are opaque, in how many samples, and why"

SERIES = "The kernel adds up its series in 16 bits, which leaves no digit to bound."

_WHY: dict[str, list[str]] = {
    SERIES: ["i0", "special.i0e", "special.i1", "special.i1e"],
    "The kernel multiplies 16-bit matrices as often as their norm asks for, and rounds each product.": ["matrix_exp"],
    "Eigenvalues of matrices that are not symmetric, and systems of complex equations, are not modelled.": [
        *("linalg.eig", "linalg.eigvals"),
    ],
    "The factors hang on which pivots are two rows, which no formula can be given.": [
        *("linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"),
    ],
    "These drivers give singular values without the vectors by which they could be certified.": [
        "linalg.lstsq",
        "linalg.lstsq.grad_oriented",
    ],
    "The polar factors come from an iteration, whose result could be certified and is not yet.": ["linalg.polar"],
    "The square root of a matrix comes from an iteration, whose result could be certified and is not yet.": [
        "linalg.matrix_sqrth",
    ],
    "Matrices of deficient rank: what their inverse is hangs on which singular values the kernel takes for 0.": [
        *("linalg.pinv", "linalg.pinv.singular"),
    ],
    "The singular vectors of a matrix of zeros are anything.": ["linalg.norm.subgradients_at_zero"],
    "The derivative rounds 1 - s, or 1 - t^2, in 16 bits, which leaves nothing where that is near 0.": [
        *("nn.functional.glu", "tanh"),
    ],
    "LAPACK's packed reflections are not modelled; the factors that linalg.qr makes of them are.": ["geqrf"],
    "Bessel's functions of the second kind and Airy's are piecewise quotients of polynomials, not modelled.": [
        *("special.airy_ai", "special.bessel_y0", "special.bessel_y1"),
    ],
    "The kernel's own series give half the digits of fp64 far from 0, where no other one is modelled.": [
        *("special.bessel_j0", "special.bessel_j1"),
    ],
    "Rows and columns that are unique, and runs of later dimensions, are not modelled; unique numbers are.": [
        *("unique", "unique_consecutive"),
    ],
    "Lists of what an empty tensor has are not modelled.": ["nonzero_static"],
    "What becomes sparse is compared by what it holds: how many numbers that are is not modelled.": ["to_sparse"],
    "Vectors that no singular value has are any basis of what the others leave.": ["linalg.svd", "svd"],
    "The kernel steps through a range in 16 bits, whose roundings leave a probe of thousands nothing to tell.": [
        *("arange", "linspace"),
    ],
    "Next to 1 a replay of bf16 numbers by another formula is too uncertain.": ["asin"],
}

OPEN: dict[str, str] = {name: reason for reason, names in _WHY.items() for name in names}
