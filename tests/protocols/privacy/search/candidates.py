"""What a search ranks, of a rule that there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from protocols.numerics.approximation import Polynomial
from protocols.privacy.search.utility import Candidate


def candidate_of(rule: Any, link: Polynomial, noise: float) -> Candidate:
    """Of a plan's rule for rows of norm 1, its link, and the noise of ALL parties."""
    if rule.kind == "barrier":
        p = rule.reciprocal
        # P(Theta - s) as a polynomial in s.
        signs = (c * (-1) ** k for k, c in enumerate(p.coefficients))
        return Candidate(
            rates=(rule.learning_rate,) * rule.rounds,
            noise=noise,
            link=link,
            strength=2 * rule.weight,
            force=replace(p, coefficients=tuple(signs), center=rule.theta - p.center),
        )
    return Candidate(
        rates=rule.rates,
        momenta=rule.momenta,
        noise=noise,
        link=link,
        strength=rule.ridge,
    )
