"""Expected log loss of a calibrated run; lower is better."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocols.numerics.approximation import sigmoid_approximation
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.calibration import Calibration
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.search.utility import Candidate, log_loss
from protocols.updates.momentum import Momentum

EXACT = sigmoid_approximation(15, 16.0).polynomial
"""Stands in for the sigmoid itself, where rows are in the clear of their owners."""


def expected_loss(found: Calibration, figures: PublicFigures) -> float | None:
    """From public figures alone; None where no model of it exists."""
    certificate = found.certificate
    if certificate and "expected_log_loss" in certificate.figures:
        return certificate.figures["expected_log_loss"]
    return _of_plan(found.template, figures)


def _of_plan(plan: RunPlan, figures: PublicFigures) -> float | None:
    """Of rules that are linear in their gradients, for rows of norm 1."""
    if plan.model != "logistic":
        return None
    found: Any = plan
    rule = found.rule
    if not isinstance(rule, Momentum) or rule.carries_point or rule.curvature is not None:
        return None
    norm = figures.norm_bound
    link = getattr(plan, "link", EXACT)
    noise = _noise(plan) / norm
    candidate = Candidate(
        rates=tuple(rate * norm**2 for rate in rule.rates),
        momenta=tuple(rule.momenta),
        noise=noise,
        link=link,
        strength=getattr(rule, "ridge", 0.0) / norm**2,
    )
    return float(log_loss([candidate], features=figures.num_features)[0])


def _noise(plan: RunPlan) -> float:
    """Std of all parties' noise on the mean gradient, root mean square over the rounds."""
    if plan.privacy is None:
        return 0.0
    scales = getattr(plan, "noise_scales", plan.privacy.sigma)
    return plan.split.total_std(float(np.sqrt(np.mean(np.square(scales)))))
