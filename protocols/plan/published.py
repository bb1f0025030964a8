"""What is made public of a run: its released weights, their known bias taken out.

Of runs on whitened rows alone, where a second moment is public, and links that stand for the
sigmoid: see `privacy.search.rescale`. A function of the plan and the released weights:
post-processing, for which no privacy is spent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.plan.run_plan import RunPlan
from protocols.privacy.search.rescale import Moments, Scaling, rescale
from protocols.privacy.search.utility import Candidate

Array = NDArray[np.float64]
REACH = "this model is as trained"
"""How `reach_words` begin."""


def published(plan: RunPlan, weights: Array, bias: float) -> tuple[Array, Scaling | None]:
    """Weights whose scores are probabilities' log-odds, and what was done; None: nothing.

    weights: as released, shape (d,), bias last; bias: value of the bias column in a row that is not
    clipped.
    """
    found: Any = plan
    if not plan.whitens or plan.privacy is None or weights.ndim != 1 or found.signed:
        return weights, None
    if "weight" in plan.row_terms:
        return weights, None  # how much of their bound rows use is not public
    whitening = found.whitening
    rule, matrix = found.rule, np.array(whitening.matrix)
    candidate = Candidate(
        rates=tuple(rule.rates),
        momenta=tuple(rule.momenta),
        noise=plan.split.total_std(plan.privacy.sigma),
        link=found.link,
        strength=getattr(rule, "ridge", 0.0),
    )
    public = Moments(
        moment=whitening.square,
        matrix=matrix,
        noise=plan.split.total_std(whitening.sigma),
        bias=bias,
    )
    scaling = rescale(np.linalg.solve(matrix, weights), candidate, public)
    return scaling.of(weights, bias), scaling


def reach_words(plan: RunPlan, released: Array) -> str:
    """How far a model of whitened rows without noise may be from the maximum; empty: others.

    T accelerated steps 1 / L from 0 leave a loss of at most 2 L |v*|^2 / (T + 1)^2 above the least
    (Beck, Teboulle 2009, Theorem 4.4), which N times is half the squared distance in standard
    errors, of all coefficients together: at most 2 |v*| sqrt(N L) / (T + 1), |v*| about |v_T|. A
    link that errs by e moves the maximum by at most about 2 e sqrt(N) of them.

    released: weights as decrypted.
    """
    found: Any = plan
    link = getattr(plan, "link", None)
    if not plan.whitens or plan.privacy is not None or link is None or link.degree == 1:
        return ""
    moved = np.linalg.solve(np.array(found.whitening.matrix), released)
    steps = 2 * np.linalg.norm(moved) * np.sqrt(plan.num_rows / found.rule.largest_learning_rate)
    bias = 2 * found.fitted.link_error(link) * np.sqrt(plan.num_rows)
    errors = float(steps / (plan.rounds + 1) + bias)
    return (
        f"{REACH}: by what is public, its coefficients together may be up to "
        f"{errors:.2g} standard errors from the maximum likelihood of its rows; exact sums "
        "(inference) end at the maximum"
    )
