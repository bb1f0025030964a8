"""A certified setting from public numbers alone: no data, no tuning runs.

`find_setting` tries a grid of intervals, degrees, learning rates and rounds (and what the method
has beside), gives each the least regulariser or the largest steps that the theorem allows, ranks
them by the expected log loss of `utility`, and returns the first one that the checker certifies.
Among settings within TOLERANCE of the best, the cheapest under encryption (rounds times levels)
wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError, PrivacyError
from protocols.numerics.whitening import Whitening
from protocols.privacy.certificates.certificate import Certificate, explain
from protocols.privacy.certificates.problem import Problem, Steps
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget
from protocols.privacy.search.strategy import Strategy
from protocols.privacy.search.utility import Moments

Floats = NDArray[np.float64]
Method = str
"""barrier, ridge (gradient descent) or nag."""
TOLERANCE = 0.003
"""Expected log losses [nats] that count as equal: a test on 10,000 rows has a standard error of
about 0.004, and 1 % of privacy noise moves the loss by less."""
_ATTEMPTS = 20


STRATEGIES: Mapping[str, str] = {
    "barrier": "protocols.privacy.search.barrier:STRATEGY",
    "ridge": "protocols.privacy.search.ridge:STRATEGY",
    "nag": "protocols.privacy.search.momentum:STRATEGY",
}
"""By method; loaded when one is asked for."""


@lru_cache(maxsize=64)
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
    paid_mu: float = 0.0,
    whitening: Whitening | None = None,
    population: Moments | None = None,
    steps: Steps | None = None,
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
        method: "barrier" (arXiv:2605.27782, Theorem 3), "ridge" (`descent_bound`), or "nag",
            accelerated steps (`momentum_bound`).
        other_delta: delta spent elsewhere, see `Budget`.
        encryption_error: e_ckks, see `Sensitivity`.
        spent_mu: of what is released beside the rounds, see `Budget`.
        paid_mu: of what an earlier run released, see `Budget`.
        whitening: of rows, whose norm_bound then is 1: gives Lambda and its proof; rounds of 4 to
            10 and degrees 7 and 15 are tried. What C costs is the caller's to count, see
            `Whitening.charged`.
        population: public second moments of the columns, times norm_bound^-2, see
            `utility.log_loss`; it ranks settings and proves nothing.
        steps: of gradient descent, where not all are to be tried.

    Returns:
        a satisfied certificate; `figures["expected_log_loss"]` is that of `utility` [nats].

    Raises:
        PrivacyError: no setting of the grid is certified, or better than noise; the message names
            the condition that binds in the one that came closest, a statement about the grid only.
        ParameterError: an argument is out of range.
    """
    if rows < 1 or features < 1 or not (math.isfinite(norm_bound) and norm_bound > 0):
        raise ParameterError(
            f"rows={rows}, features={features}, norm_bound={norm_bound}: need >= 1, >= 1, > 0"
        )
    if rounds is not None and rounds < 1:
        raise ParameterError(f"rounds={rounds} is below 1")
    if method not in STRATEGIES:
        raise ParameterError(
            f"update {method!r} has no privacy certificate on encrypted rows: add --no-privacy, or "
            "take --protocol secure-aggregation"
        )
    split = NoiseSplit(parties=parties, colluders=colluders)
    problem = Problem(
        method=method,
        rows=rows,
        features=features,
        norm_bound=norm_bound,
        budget=Budget(
            epsilon=epsilon,
            delta=delta,
            split=split,
            other_delta=other_delta,
            spent_mu=spent_mu,
            paid_mu=paid_mu,
        ),
        encryption_error=encryption_error,
        rounds=rounds,
        degree=degree,
        spectrum=None if whitening is None else min(whitening.spectrum, norm_bound**2),
        whitening=whitening,
        steps=steps,
    )
    strategy: Strategy = resolve_name(STRATEGIES[method])
    budget, most = problem.budget, -math.inf
    why, slack = f"condition {strategy.fails} fails on the whole grid", -math.inf
    for draft, loss in _ranked(strategy, problem, population)[:_ATTEMPTS]:
        worthless = strategy.worthless(draft, loss, features)
        if worthless:
            why = worthless if slack == -math.inf else why
            break
        setting = strategy.setting(draft, problem)
        if epsilon is not None:
            limit = budget.largest_epsilon(
                sigma=float(setting.sigma),
                values=draft.rounds * features,
                failure=strategy.failure(budget, features, draft.rounds),
            )
            most = max(most, limit)
            if epsilon > limit:
                continue
        certificate = strategy.check(setting)
        if certificate.satisfied:
            figures = {**certificate.figures, "expected_log_loss": loss}
            return replace(certificate, figures=figures)
        if certificate.binding.slack > slack:
            why, slack = explain(certificate.binding), certificate.binding.slack
    if epsilon is not None and -math.inf < most < epsilon:
        raise PrivacyError(
            f"epsilon={epsilon:g} is above {math.floor(10 * most) / 10:g}: what the noise's grid "
            f"adds to delta grows as exp(epsilon), and exceeds what delta={delta:g} leaves for it; "
            "take a smaller epsilon, a larger delta, or --no-privacy"
        )
    raise PrivacyError(
        f"no {method} setting is certified for rows={rows}, features={features}, "
        f"epsilon={epsilon}: {why}; raise rows, epsilon or delta, lower features or rounds, "
        f"{strategy.cure}"
    )


def _ranked(
    strategy: Strategy, problem: Problem, population: Moments | None
) -> list[tuple[Any, float]]:
    """Drafts with their losses: the cheapest of the good ones first, then by loss."""
    found = list(strategy.drafts(problem))
    losses = strategy.merits(found, problem.features, population)
    levels = [math.ceil(math.log2(draft.degree + 1)) + 3 for draft in found]
    cost = np.array([draft.rounds for draft in found]) * np.array(levels)
    good = losses <= losses.min(initial=math.inf) + TOLERANCE
    order = np.lexsort((losses, np.where(good, cost, np.inf)))
    return [(found[i], float(losses[i])) for i in order if math.isfinite(losses[i])]
