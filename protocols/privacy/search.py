"""A certified setting from public numbers alone: no data, no tuning runs.

`find_setting` tries a grid of intervals, degrees, learning rates and rounds (and, for the barrier,
Theta and kappa), gives each the least regulariser that the theorem allows, ranks them by the
mean-field proxy of `utility`, and returns the first one that the checker certifies. Among settings
within `TOLERANCE` of the best, the cheapest under encryption (rounds times levels) wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from protocols.errors import ParameterError, PrivacyError
from protocols.privacy import (
    barrier_certificate,
    barrier_search,
    ridge_certificate,
    ridge_search,
)
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import Certificate, explain
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.utility import Candidates, correlation

Method = Literal["barrier", "ridge"]

ROUNDS = (25, 50, 100, 200, 400)
DEGREES = (3, 5, 7)
TOLERANCE = 0.01

_ATTEMPTS = 20


def find_setting(
    *,
    rows: int,
    features: int,
    norm_bound: float,
    epsilon: float | None,
    delta: float,
    parties: int,
    colluders: int,
    rounds: int | None = None,
    degree: int | None = None,
    method: Method = "barrier",
    other_delta: float = 0.0,
    encryption_error: float = 0.0,
    spent_mu: float = 0.0,
) -> Certificate:
    """Find a certified setting of the given method.

    Args:
        rows: N, all parties' rows together.
        features: m, columns **including** the bias.
        norm_bound: B_x, public bound on every row's norm, bias included; owners clip to it.
        epsilon: the promise; None for no noise, then eta = 1 / beta.
        delta: the promise; without epsilon it plays no part.
        parties: P.
        colluders: t.
        rounds: T; None tries several.
        degree: of the sigmoid's polynomial; None tries 3, 5 and 7.
        method: "barrier" (arXiv:2605.27782, Theorem 3) or "ridge" (`ball`).
        other_delta: delta spent elsewhere, see `Budget`.
        encryption_error: e_ckks, see `Sensitivity`.
        spent_mu: of what is released beside the rounds, see `Budget`.

    Returns:
        a satisfied certificate; `figures["merit"]` is the proxy's value, 0 .. 1.

    Raises:
        PrivacyError: no setting of the grid is certified; the message names the condition that
            binds in the one that came closest, a statement about the grid only.
        ParameterError: an argument is out of range.
    """
    if rows < 1 or features < 1 or not (math.isfinite(norm_bound) and norm_bound > 0):
        raise ParameterError(
            f"rows={rows}, features={features}, norm_bound={norm_bound}: need >= 1, >= 1, > 0"
        )
    if rounds is not None and rounds < 1:
        raise ParameterError(f"rounds={rounds} is below 1")
    if method not in ("barrier", "ridge"):
        raise ParameterError(f"method={method!r} is neither 'barrier' nor 'ridge'")
    budget = Budget(
        epsilon=epsilon,
        delta=delta,
        split=NoiseSplit(parties=parties, colluders=colluders),
        other_delta=other_delta,
        spent_mu=spent_mu,
    )
    module: Any = barrier_search if method == "barrier" else ridge_search
    check: Callable[[Any], Certificate] = (
        barrier_certificate.check if method == "barrier" else ridge_certificate.check
    )
    found = list(
        module.drafts(
            rows=rows,
            features=features,
            budget=budget,
            rounds=ROUNDS if rounds is None else (rounds,),
            degrees=DEGREES if degree is None else (degree,),
            etas=None if epsilon is None else module.ETAS,
        )
    )
    closest: Certificate | None = None
    if found:
        for index, merit in _ranking(found, module.candidates(found), features)[:_ATTEMPTS]:
            certificate = check(
                module.setting(
                    found[index],
                    rows=rows,
                    features=features,
                    norm_bound=norm_bound,
                    budget=budget,
                    encryption_error=encryption_error,
                )
            )
            if certificate.satisfied:
                return replace(certificate, figures={**certificate.figures, "merit": merit})
            if closest is None or certificate.binding.slack > closest.binding.slack:
                closest = certificate
    raise PrivacyError(_refusal(method, rows, features, epsilon, closest))


def _ranking(
    found: Sequence[Any], candidates: Candidates, features: int
) -> list[tuple[int, float]]:
    """(index, merit) of drafts: the cheapest of the good ones first, then by merit."""
    merit = correlation(candidates, features=features)
    levels = np.array([math.ceil(math.log2(_degree(draft) + 1)) + 3 for draft in found])
    cost = candidates.rounds * levels
    good = merit >= merit.max() - TOLERANCE
    order = np.lexsort((-merit, np.where(good, cost, np.inf)))
    return [(int(i), float(merit[i])) for i in order]


def _degree(draft: Any) -> int:
    """Degree of a draft's sigmoid."""
    if isinstance(draft, barrier_search.Draft):
        return draft.degree
    degree: int = draft.approximation.polynomial.degree
    return degree


def _refusal(
    method: str, rows: int, features: int, epsilon: float | None, closest: Certificate | None
) -> str:
    """Why nothing was found."""
    head = f"no {method} setting is certified for rows={rows}, features={features}, "
    cure = "raise rows, epsilon or delta, lower features or rounds, or clip to a smaller norm"
    if closest is None:
        name = "norm (condition (2))" if method == "barrier" else "ball"
        return f"{head}epsilon={epsilon}: condition {name} fails on the whole grid; {cure}"
    return f"{head}epsilon={epsilon}; {explain(closest.binding)}; {cure}"
