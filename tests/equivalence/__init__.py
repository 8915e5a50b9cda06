"""The standing adversary: pairs of random training programs whose label is known by construction (README.md)."""
