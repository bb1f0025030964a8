"""Figures in words: sizes, durations, counts, and the facts that plans tell about themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocols.numerics.approximation import Polynomial

Fact = tuple[str, str, str]
"""Name, value, meaning."""
NONE = "–"
"""Stands for a figure that does not exist, wherever a person reads."""
ATTACK = "the best known attack takes about 2^128 operations (HomomorphicEncryption.org tables)"

INSECURE = "INSECURE: toy ring without any security; for tests only, never with real data"
NOT_PRIVATE = "NOT PRIVATE: seeded noise can be subtracted by whoever knows the seed"
EXACT_SUMS = (
    "what opens without noise is a sum over rows, or a model that comes down to one by the rounds "
    "and the rate that are chosen: whoever sees it, an honest coordinator or any one owner, can "
    "read whole records, such as that of a row with a category of its own"
)
"""What a plan with `opens_exact_sums` gives away."""
AGAINST = (
    "epsilon holds against whoever sees what the run releases, colluders included; that of all "
    "rounds composed holds also against an owner that deviates so that a combination of rounds "
    "opens, and against whoever gets the key shares or the secret coins"
)
"""Against whom the two epsilons of a certificate stand, of one sum."""
HOLDS = f"{AGAINST}, as long as training stays in its proven bounds"
"""And of a training."""


def size(num_bytes: float) -> str:
    """Bytes with a decimal unit."""
    for unit in ("bytes", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "bytes" else f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} GB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def number(value: float) -> str:
    """Four significant digits, no trailing zeros; `NONE` where there is none."""
    return NONE if value != value else f"{value:.4g}".replace("-", "−")


def printable(text: str) -> str:
    """What another party chose, for a terminal: no line of its own, and none that it hides."""
    return "".join(c if c.isprintable() else "?" for c in text)


def count(amount: int, noun: str) -> str:
    """1 row, 2 rows, 3 parties."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{amount:,} {noun if amount == 1 else plural}"


def promise(epsilon: float, delta: float, colluders: int) -> str:
    """Of a run, and against whom."""
    whom = f" and {count(colluders, 'other owner')}" * (colluders > 0)
    return f"epsilon={epsilon:.4g}, delta={delta:g} against the coordinator{whom}"


def towards_one(epsilon_by_coalition: Sequence[float]) -> str:
    """What one other owner sees, who knows its own noise; empty without a promise.

    epsilon_by_coalition: entry k: against k owners, as certificates have it.
    """
    if len(epsilon_by_coalition) < 2:
        return ""
    epsilon = epsilon_by_coalition[1]
    return f"towards one other owner, who subtracts its own noise: epsilon={epsilon:.4g}"


def link_facts(link: Polynomial, error: float, function: str, unit: str) -> Iterator[Fact]:
    """Of a polynomial stand-in; error: certified, in `unit`."""
    yield (
        "Polynomial degree",
        str(link.degree),
        "encrypted numbers can only be added and multiplied, so a polynomial replaces the "
        + function,
    )
    yield (
        "Interval",
        f"[{number(link.low)}, {number(link.high)}]",
        "the range of scores on which that polynomial is meant to be used",
    )
    yield (
        "Largest error",
        number(error),
        f"certified bound on its distance to the {function} on the interval, {unit}",
    )


def target_facts(ridge: float, outputs: int) -> Iterator[Fact]:
    """Of a regression."""
    yield "Ridge", number(ridge), "weight of the squared coefficients beside the mean error"
    meaning = "predicted at once: all of them share every ciphertext"
    yield "Targets", str(outputs), meaning
