"""How large a slot gets that a refresh or the decryption carries, and by which proof.

A refresh shows the coordinator m - M, M uniform below a bound that leaves room for m. A coefficient
of m beyond that room shows its top bits, and m is *unsummed columns*: a slot is a value of few
rows. So every plan states a bound on |slot|, and every party computes it again from the plan and
from its own schema's norm bound, before it agrees (`parties.policy`).

**Coefficients.** m_k = 2 / n sum_i Re(z_i zeta_i^-k) scale over the n / 2 slots z_i, |zeta_i| = 1:
|m_k| <= scale max |z_i|, the constant is 1.

What the bounds take for granted: every owner's rows have at most the norm that the schema says
(its own encoder sees to that), and everybody evaluates the plan. A coordinator that deviates, or an
owner that encrypts other values than its rows, is not covered.

The proofs are in `slots.py` of rows, lffr and gram. They bound exact arithmetic; MARGIN
covers what encryption adds. The worst data of `test_slot_bounds.py` attain between a sixteenth of
them and all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from protocols.errors import ParameterError

MARGIN = 1 + 2.0**-6
"""Roundings leave 2^-30 of a slot at most, primes are off 2^scale_bits by 2^-20 of it."""
LARGEST_SLOT = 2.0**32
"""A proven bound above this is as good as none: no plan that trains is near it."""
LARGEST_FAILURE = 2.0**-10
"""Nor is one that fails more often."""


OUT_OF_RANGE = (ParameterError, ArithmeticError, np.linalg.LinAlgError)
"""What a hostile plan's numbers lead to: no proof, and no other error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotBounds:
    """Bounds on |slot|, in the units of the encryption.

    refreshes: of each refresh step, in order; release: of the decrypted vector; proof: which one,
    or, where a bound is infinite, why there is none; failure: probability that noise exceeds what
    the proof allows, in the whole run.
    """

    refreshes: tuple[float, ...]
    release: float
    proof: str
    failure: float = 0.0

    @classmethod
    def unproven(cls, steps: int, reason: str) -> SlotBounds:
        """No bound for so many refreshes."""
        return cls(refreshes=(math.inf,) * steps, release=math.inf, proof=reason)

    @classmethod
    def proven(
        cls, refreshes: Iterable[float], release: float, proof: str, failure: float = 0.0
    ) -> SlotBounds:
        """From bounds of exact arithmetic."""
        wide = tuple(bound * MARGIN for bound in refreshes)
        return cls(refreshes=wide, release=release * MARGIN, proof=proof, failure=failure)

    def paired(self) -> SlotBounds:
        """Where two features share a slot of a refresh."""
        return replace(self, refreshes=tuple(2 * bound for bound in self.refreshes))

    @property
    def largest(self) -> float | None:
        """Of all; None where nothing is proven."""
        largest = max((*self.refreshes, self.release))
        # A nan is no bound either.
        holds = largest <= LARGEST_SLOT and self.failure <= LARGEST_FAILURE
        return largest if holds else None

    def sentence(self, parties: int) -> str:
        """One sentence for whoever consents."""
        if self.largest is None:
            return f"NO PROOF ({self.proof}): {risk(parties)}"
        chance = f", except with probability {self.failure:.1g}" if self.failure else ""
        return f"at most {self.largest:.4g} ({self.proof}{chance}), so that the masks hide them"


def risk(parties: int) -> str:
    """What a run without a proof risks."""
    return (
        "no bound on this run's iterates is proven: if training diverges, refreshes may show the "
        f"coordinator about {math.log2(2 * parties):.1f} bits (log2(2P)) a refresh of each value "
        "computed from a row, and those of several refreshes add up"
    )
