"""What three usual rules say of the same tensors: TYPE_I where they accept the target, TYPE_II where they do not."""

import math

import torch
from scenario import TYPE_I, TYPE_II, Taps


def assert_close(target: Taps, reference: Taps) -> str:
    """torch.testing.assert_close with its default tolerances, on every tap."""
    try:
        for name, expected in reference.items():
            torch.testing.assert_close(target[name], expected)
    except AssertionError:
        return TYPE_II
    return TYPE_I


def fp64_rule(target: Taps, reference: Taps, oracle: Taps) -> str:
    """TYPE_II where the target's error against the reference's program in fp64 is over twice the reference's own."""
    for name, expected in reference.items():
        exact = oracle[name].double()
        own = (expected.double() - exact).square().mean().sqrt()
        error = (target[name].double() - exact).square().mean().sqrt()
        if not error <= 2 * own:  # A NaN is an error too.
            return TYPE_II
    return TYPE_I


def intervals(taps: list, reference: Taps) -> str:
    """Plain forward intervals of the scalar taps: TYPE_II where the reference lies outside of the target's. An interval
    that exploded, or that a tensor tap lacks, decides nothing and so accuses nobody."""
    for tap in taps:
        if tap.name in reference and reference[tap.name].numel() == 1 and math.isfinite(tap.interval_radius):
            middle = (tap.low + tap.high) / 2
            if not abs(reference[tap.name].double().item() - middle) <= tap.interval_radius:
                return TYPE_II
    return TYPE_I
