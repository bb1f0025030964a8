"""All update rules by name: one line each, loaded when asked for, so that names cost no library."""

from __future__ import annotations

from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION

ANYWHERE = {
    "barrier": "barrier.Barrier",
    "gd": "momentum.GradientDescent",
    "nag": "momentum.Nesterov",
    "quadratic-nag": "quadratic.QuadraticNesterov",
    "quadratic-gd": "quadratic_descent.QuadraticDescent",
}
"""Sums and products alone, hence also on ciphertexts."""
IN_THE_CLEAR = {
    "hb": "momentum.HeavyBall",
    "masg": "strongly_convex.MultiStage",
    "scd": "dual_ascent.DualAscent",
    "adagrad": "adaptive.Adagrad",
    "adam": "adaptive.Adam",
    "quadratic-adagrad": "adaptive.QuadraticAdagrad",
    "quadratic-adam": "adaptive.QuadraticAdam",
}
"""Offered with secure aggregation alone."""
UNASKED = {"nag-sc": "strongly_convex.StronglyConvexNesterov"}
"""What other choices make: nag with a ridge, and nag-opt."""
VARIANTS = ("clipped-gd", "nag-opt", "masg-opt")
"""Choices with secure aggregation that make a rule of another name."""
RULES = {**ANYWHERE, **IN_THE_CLEAR, **UNASKED}
"""Module and class of every kind in a plan."""
UPDATES = {
    ENCRYPTED_ROWS: tuple(ANYWHERE),
    ENCRYPTED_MODEL: tuple(ANYWHERE),
    SECURE_AGGREGATION: (*ANYWHERE, *VARIANTS, *IN_THE_CLEAR),
}
"""What each protocol offers."""
