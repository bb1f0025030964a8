"""What is measured: name, unit, meaning, and the formula that it is compared with.

Formulas are written from the derivations (SECURITY.md, test_ceremony.py), not from
the code that is measured: the two can disagree. Per coefficient, n the ring dimension, s the sum of
P uniform ternary secrets (variance 2 / 3 each).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

# Std of OpenFHE's key and encryption errors; of those of rotation keys, which OpenFHE 1.6 draws in
# a loop whose generators have deviation 1; of the encrypted sums' secrets and errors.
SIGMA, KEY_SIGMA, SUM_SIGMA = 3.19, 1.0, 6.38
WORDS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "words.yaml").read_text("utf-8"))


class Component(NamedTuple):
    """One measured quantity, see `words.yaml`."""

    title: str
    unit: str
    formula: str = ""
    relation: str = ""
    order: str = ""


COMPONENTS = {name: Component(**fields) for name, fields in WORDS["components"].items()}
for _role, _words in (("party", "busiest party"), ("coordinator", "coordinator")):
    for _phase in ("keys", "encrypt", "train", "refresh", "decrypt"):
        _title = f"work of the {_words}, {_phase}"
        COMPONENTS[f"seconds_{_role}_{_phase}"] = Component(_title, "seconds")


def total_ratio(parties: int, colluders: int) -> float:
    """Noise of all parties over sigma, where each adds sigma / sqrt(P - t)."""
    return math.sqrt(parties / (parties - colluders))


def left_ratio(parties: int, colluders: int, coalition: int) -> float:
    """What a coalition of k leaves, over sigma: sqrt((P - k) / (P - t))."""
    return math.sqrt((parties - coalition) / (parties - colluders))


def secret(parties: int) -> float:
    """Std of a coefficient of s."""
    return math.sqrt(2 * parties / 3)


def public_key(parties: int) -> float:
    """sum_p e_p."""
    return SIGMA * math.sqrt(parties)


def rotation_key(parties: int) -> float:
    """sum_p e_p of the narrow generator."""
    return KEY_SIGMA * math.sqrt(parties)


def relinearisation_key(parties: int, n: int) -> float:
    """s e0 + u e1 + e2, every term a sum over parties, e2 of three errors."""
    both = KEY_SIGMA**2 + SIGMA**2
    return math.sqrt(parties * (3 * SIGMA**2 + 2 * n * parties / 3 * both))


def encryption(parties: int, n: int) -> float:
    """v e + e0 + e1 s: v is ternary, e the joint key's error."""
    return SIGMA * math.sqrt(1 + 4 * n * parties / 3)


def refresh(parties: int, n: int) -> float:
    """Rounding of the one rescaling that follows the map T.

    Before it the ciphertext is T(m) + e at twice the scale, exactly: T, of integer coefficients, is
    linear modulo Q, and the masks cancel. e is the sum of P fresh errors, std 3.19 each. The
    rescaling divides by a prime q near the scale 2^59, which leaves nothing of e,
    and rounds both polynomials: tau_0 + tau_1 s, tau_i uniform in [-1/2, 1/2], variance 1 / 12,
    and each coefficient of tau_1 s a sum of n products of variance (1 / 12) (2 P / 3).
    """
    return math.sqrt((1 + 2 * n * parties / 3) / 12)


def model_refresh(parties: int) -> float:
    """sum_p e_p: the map of an encrypted model's refresh is rounded in the clear.

    Roundings are at 2k of n coefficients, variance (P + 1) / 12 there; left out.
    """
    return SIGMA * math.sqrt(parties)


def release(parties: int, std: float, n: int, scale: float, radius: float) -> float:
    """P shares' flooding of std `std` as slots; weights are kept over the radius."""
    return radius * math.sqrt(n / 2 * parties) * std / scale


def model_release(parties: int, std: float, period: int, scale: float, radius: float) -> float:
    """Flooding of 2k coefficients as k slots, of which a cosine leaves half."""
    return radius * math.sqrt(period * parties) * std / scale


def opened(parties: int) -> float:
    """sum_p e_p of the encrypted sums [units]."""
    return SUM_SIGMA * math.sqrt(parties)
