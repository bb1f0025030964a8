"""The slope of LFFR by a cubic link, on ciphertexts and on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocols.ckks.factored import Link


def lffr_slope(link: Link, z: Any, with_label: Callable[[Any], Any]) -> Any:
    """(T + h / A) (T^2 - 1 / (2 A)^2), T = z (z^2 - root); with_label: T + h / A, of T."""
    (root,) = link.factors.roots
    t = z * (z * z + -root)
    return with_label(t) * (t * t + -1 / (2 * link.factors.leading) ** 2)
