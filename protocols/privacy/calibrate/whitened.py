"""Whitened rows: first a private second moment, then few steps as long as it allows.

The plan of the second run follows from what the first one opened, which is public. Before there is
any, `expected_moment` stands for it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError, PrivacyError
from protocols.numerics import arithmetic
from protocols.numerics.whitening import Whitening, scaled, whiten
from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum, whole_mu
from protocols.privacy.calibrate.pace import DEGREE, SHARE, pace
from protocols.privacy.calibrate.rows import RowsChoice, rows_plan
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.problem import Steps
from protocols.privacy.certificates.ridge import RidgeSetting
from protocols.privacy.search.search import find_setting
from protocols.privacy.search.utility import Columns
from protocols.sums.objectives import MomentObjective
from protocols.sums.plan import GradientPlan
from protocols.updates.momentum import GradientDescent

Array = NDArray[np.float64]

RULES = {"quadratic-gd": "ridge", "quadratic-nag": "nag"}
"""Updates that are private by whitening, and what steps on whitened rows."""
FAILURE_SHARE = 2.0**-6
"""Of delta, for the tail of the second moment's noise."""
NOTE = (
    "two runs: one opens the noisy second moment of the rows' columns, the other trains on rows "
    "that are whitened by it; epsilon is of both"
)
HALVINGS = 8
"""Of steps that no ball holds, before there is no plan."""
MOST_FEATURES = 160
"""A plan holds two matrices, and has to fit into the header of a message."""


class Moment(NamedTuple):
    """What the first run opened: shape (d, d), its noise as in `Whitening`, and its plan."""

    matrix: Array
    sigma: float
    plan: str


def moment_plan(figures: PublicFigures, wanted: Wanted) -> GradientPlan:
    """One noisy sum by secure aggregation.

    Raises:
        ParameterError: no privacy is wanted, or there are too many columns.
    """
    if wanted.epsilon is None:
        raise ParameterError("epsilon=None: rows are whitened in runs with privacy alone")
    _check_size(figures)
    task = MomentObjective(row_norm=figures.norm_bound, epsilon_in_all=wanted.epsilon)
    return plan_sum(figures, wanted, task, math.sqrt(SHARE) * whole_mu(wanted))


def expected_moment(figures: PublicFigures, first: GradientPlan) -> Moment:
    """Of the reference population (`utility`), without noise; first: the plan that is to sum it."""
    usual = Columns.usual(figures.num_features)
    diagonal = np.repeat(usual.moments, usual.count.astype(int)) * figures.norm_bound**2
    return Moment(np.diag(diagonal), first.noise_scales[0], first.digest())


def draft_whitened(
    figures: PublicFigures, wanted: Wanted, moment: Moment, *, opened: bool
) -> Draft:
    """The best certified run of few steps on whitened rows.

    opened: whether a part of epsilon is spent already: then there is a plan, whatever was opened,
    if not of the update that was wanted or not on rows that are whitened.

    Raises:
        PrivacyError: none is certified. ParameterError: options that do not fit.
    """
    whitening = _whitening(figures, wanted, moment, opened)
    certificate = _certified(figures, wanted, whitening, opened)
    setting: Any = certificate.setting
    chosen = RowsChoice(
        rule=GradientDescent(
            rounds=setting.rounds, learning_rate=setting.learning_rate, ridge=setting.lam
        )
        if isinstance(setting, RidgeSetting)
        else setting.rule,
        link=setting.sigmoid,
        privacy=wanted.promise(
            figures, sigma=float(setting.sigma), sensitivity=float(certificate.sensitivity)
        ),
        certificate=certificate,
        notes=(NOTE,),
    )
    plan = rows_plan(figures, wanted, chosen, whitening=whitening, moment_plan=moment.plan)
    return Draft(plan, certificate, chosen.notes)


def _whitening(figures: PublicFigures, wanted: Wanted, moment: Moment, opened: bool) -> Whitening:
    known: dict[str, Any] = {
        "sigma": moment.sigma,
        "split": wanted.split(figures),
        "failure": FAILURE_SHARE * wanted.delta,
    }
    try:
        return whiten(moment.matrix, **known)
    except ParameterError:
        if not opened:
            raise
    return scaled(moment.matrix, norm_bound=figures.norm_bound, **known)


def _certified(
    figures: PublicFigures, wanted: Wanted, whitening: Whitening, opened: bool
) -> Certificate:
    method = RULES[wanted.update]
    if method != "ridge":
        try:
            return _found(figures, wanted, whitening, method, None)
        except PrivacyError:
            if not opened:
                raise
    # Of small tables, too, where whitening was asked for. Steps that are short enough stay in any
    # ball.
    steps = pace(figures, wanted).steps
    for k in range(HALVINGS):
        with suppress(PrivacyError):
            return _found(figures, wanted, whitening, "ridge", steps.shorter(0.5**k))
    return _found(figures, wanted, whitening, "ridge", steps.shorter(0.5**HALVINGS))


def _found(
    figures: PublicFigures,
    wanted: Wanted,
    whitening: Whitening,
    method: str,
    steps: Steps | None,
) -> Certificate:
    counted: dict[str, Any] = whitening.charged(
        arithmetic.allowances(1.0, figures.num_features),
        wanted.split(figures),
        rows=figures.rows,
        norm_bound=figures.norm_bound,
        epsilon=wanted.epsilon or 0.0,
    )
    return find_setting(
        method=method,
        rows=figures.rows,
        features=figures.num_features,
        norm_bound=1.0,
        whitening=whitening,
        population=_moments(whitening),
        epsilon=wanted.epsilon,
        delta=wanted.delta,
        parties=figures.parties,
        colluders=wanted.colluders,
        rounds=wanted.rounds,
        degree=wanted.degree or (DEGREE if steps else None),
        steps=steps,
        **counted,
    )


def _moments(whitening: Whitening) -> tuple[float, ...]:
    """Of uncorrelated columns of the whitened rows, as far as C tells."""
    matrix = np.array(whitening.matrix)
    found = np.linalg.eigvalsh(matrix @ whitening.square @ matrix)
    return tuple(np.maximum(found, 0.0).tolist())


def _check_size(figures: PublicFigures) -> None:
    if figures.num_features > MOST_FEATURES:
        raise ParameterError(
            f"features={figures.num_features} are too many to whiten rows ({MOST_FEATURES} at "
            "most): take --update gd or barrier"
        )
