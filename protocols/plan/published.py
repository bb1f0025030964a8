"""What is made public of a run: its released weights, their known bias taken out.

Of runs on whitened rows alone, where a second moment is public, and links that stand for the
sigmoid: see `privacy.rescale`. A function of the plan and the released weights: post-processing,
for which no privacy is spent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.plan.run_plan import RunPlan
from protocols.privacy.search.rescale import Moments, Scaling, rescale
from protocols.privacy.search.utility import Candidate

Array = NDArray[np.float64]


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
