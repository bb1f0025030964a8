"""What flooding leaves of an error vector that is known."""

from __future__ import annotations

import math

from protocols.ckks.flooding import Floats, Flooding
from protocols.ckks.transform import to_slots


def norm(flooding: Flooding, error: Floats) -> float:
    """sqrt(e^T Sigma^-1 e) of an error vector's coefficients, shape (n,)."""
    n, place = len(error), error
    whole = float((error**2).sum())
    if len(flooding.shown) < n:
        place = math.sqrt(2 / n) * to_slots(error).real
    part = float((place[flooding.shown] ** 2).sum())
    return math.sqrt(part / flooding.std**2 + max(whole - part, 0.0) / flooding.rest**2)


def bits(flooding: Flooding, error: Floats, tau: int = 1) -> float:
    """s that an error vector's coefficients, shape (n,), leave over tau decryptions."""
    return -2 * math.log2(math.sqrt(12 * tau) * norm(flooding, error))
