"""Whitened rows: first a private second moment, then few steps as long as it allows.

The plan of the second run follows from what the first one opened, which is public. Before there is
any, `expected_moment` stands for it.
"""

from __future__ import annotations

import math
import pkgutil
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError, PrivacyError
from protocols.models.registry import model_named
from protocols.names import ENCRYPTED_ROWS
from protocols.numerics import arithmetic
from protocols.numerics.whitening import (
    UNKNOWN,
    WARY,
    Whitening,
    guided,
    rescaled,
    scaled,
    whiten,
)
from protocols.plan.run_plan import PrivacyPlan, RunPlan
from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum, whole_mu
from protocols.privacy.calibrate.pace import DEGREE, SHARE, pace
from protocols.privacy.calibrate.rows import (
    DEFAULT_DEGREE,
    DEFAULT_RADIUS,
    RowsChoice,
    rows_plan,
    usual_rule,
)
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.problem import Steps
from protocols.privacy.search.search import find_setting
from protocols.privacy.search.utility import Columns
from protocols.sums.objectives import MomentObjective
from protocols.sums.plan import GradientPlan
from protocols.updates.momentum import GradientDescent
from protocols.updates.registry import rule_named
from protocols.updates.update import Update

Array = NDArray[np.float64]

SUMMED = {
    ENCRYPTED_ROWS: "gram:draft_whitened",
}
"""Of numeric models: protocols that train on sums."""
RULES = {"quadratic-gd": "ridge", "quadratic-nag": "nag"}
"""Updates that are private by whitening, and what steps on whitened rows."""
FAILURE_SHARE = 2.0**-6
"""Of delta, for the tail of the second moment's noise."""
NOTE = (
    "two runs: one opens the noisy second moment of the rows' columns, the other trains on rows "
    "that are whitened by it; epsilon is of both"
)
QUIET_NOTE = (
    "two runs: one opens the noisy second moment of the rows' columns, at epsilon={:g} for it "
    "alone; the other trains, without noise, on rows that are whitened by it"
)
QUIET_ROUNDS = 12
"""Of accelerated steps without noise: within .003 of the least log loss on most tables; which do,
and which do not: docs/inference.md."""
LONGER = 1.1
"""Times 1 / L: nag stands 4 / 3 on a quadratic of curvature L, and where anything is learnt the
mean of p (1 - p) is well below the 1/4 of L."""
QUIET_RADIUS = 12.0
"""Of the link there, of degree DEGREE; logits of those tables reach 4 to 9."""
UNSURE = 2.0
"""Times what is guessed of the largest eigenvalue, of linear models."""
ROUNDED = 1e-6
"""Of mu^2: no rounding makes epsilon more than is announced."""
HALVINGS = 8
"""Of steps that no ball holds, before there is no plan."""
MOST_FEATURES = 160
"""A plan holds two matrices, and has to fit into the header of a message."""


class Moment(NamedTuple):
    """What the first run opened: shape (d, d), its noise as in `Whitening`, plan and promise."""

    matrix: Array
    sigma: float
    plan: str
    promise: PrivacyPlan | None = None

    @classmethod
    def of(cls, matrix: Array, plan: GradientPlan) -> Moment:
        """Opened by a run of this plan."""
        return cls(matrix, plan.noise_scales[0], plan.digest(), plan.privacy)


def moment_plan(figures: PublicFigures, wanted: Wanted) -> GradientPlan:
    """One noisy sum by secure aggregation.

    Raises:
        ParameterError: no privacy is wanted, or there are too many columns.
    """
    _check_size(figures)
    promised = of_moment(figures, wanted)
    epsilon = promised.epsilon
    if epsilon is None:
        raise ParameterError(
            "epsilon=None, moment_epsilon=None: a second moment is summed with noise; give one"
        )
    task = MomentObjective(row_norm=figures.norm_bound, epsilon_in_all=epsilon)
    share = SHARE if wanted.epsilon is not None else 1 - ROUNDED
    return plan_sum(figures, promised, task, math.sqrt(share) * whole_mu(promised))


def announcing(first: GradientPlan, then: RunPlan) -> GradientPlan:
    """The plan of the second moment; says whether nothing is proven of the slots of what follows.

    Owners who would refuse that refuse before the noise is spent.
    """
    return replace(first, objective={**first.objective, "unproven": then.unproven})


def of_moment(figures: PublicFigures, wanted: Wanted) -> Wanted:
    """With the promise of the second moment, where the training has none.

    Against one colluder at least, for its noise costs the model nothing; fewer than three parties
    withstand none.
    """
    if wanted.epsilon is not None:
        return wanted
    colluders = max(wanted.colluders, min(1, figures.parties - 2))
    return replace(wanted, epsilon=wanted.moment_epsilon, colluders=colluders)


def expected_moment(figures: PublicFigures, first: GradientPlan) -> Moment:
    """Of the reference population (`utility`), without noise; first: the plan that is to sum it."""
    usual = Columns.usual(figures.num_features)
    diagonal = np.repeat(usual.moments, usual.count.astype(int)) * figures.norm_bound**2
    return Moment.of(np.diag(diagonal), first)


def draft_whitened(
    figures: PublicFigures, wanted: Wanted, moment: Moment, *, opened: bool
) -> Draft:
    """The best certified run of few steps on whitened rows.

    opened: whether a part of epsilon is spent already: then there is a plan, whatever was opened,
    if not of the update that was wanted or not on rows that are whitened.

    Raises:
        PrivacyError: none is certified. ParameterError: options that do not fit.
    """
    if wanted.epsilon is None:
        return _draft_quiet(figures, wanted, moment)
    whitening = _whitening(figures, wanted, moment, opened)
    certificate = _certified(figures, wanted, whitening, opened)
    setting: Any = certificate.setting
    chosen = RowsChoice(
        rule=setting.rule,
        link=setting.sigmoid,
        privacy=wanted.promise(
            figures, sigma=float(setting.sigma), sensitivity=float(certificate.sensitivity)
        ),
        certificate=certificate,
        notes=(NOTE,),
    )
    plan = rows_plan(figures, wanted, chosen, whitening=whitening, moment_plan=moment.plan)
    return Draft(plan, certificate, chosen.notes)


def _draft_quiet(figures: PublicFigures, wanted: Wanted, moment: Moment) -> Draft:
    """Without noise, of rows that nothing clips: steps as long as the curvature allows."""
    model, known = model_named(wanted.model), _known(figures, wanted, moment)
    if model.numeric and wanted.protocol in SUMMED:
        draft = pkgutil.resolve_name(f"protocols.privacy.calibrate.{SUMMED[wanted.protocol]}")
        found: Draft = draft(figures, wanted, moment, known)
        return found
    rule: Any
    degree, radius = DEGREE, QUIET_RADIUS
    if wanted.update in RULES:
        degree, radius = DEFAULT_DEGREE, DEFAULT_RADIUS
        whitening, unit = rescaled(moment.matrix, **known)
        rule = _diagonal(wanted, unit / model.curvature)
    else:
        unknown = WARY if model.numeric else UNKNOWN
        whitening, guess = guided(moment.matrix, figures.usual, unknown=unknown, **known)
        largest = float(guess[-1])
        rate = LONGER / (model.curvature * largest)
        if model.numeric:
            # Its loss curves as much everywhere: no step may be longer than that.
            rate = 1 / min(UNSURE * largest, whitening.spectrum)
        rule = usual_rule(figures, wanted, rounds=wanted.rounds or QUIET_ROUNDS, rate=rate)
    radius = (wanted.radius or radius) + figures.offset_reach
    link = model.approximation(wanted.degree or degree, radius)
    targets = {}
    if model.numeric:
        link, targets = model.approximation(1, 1.0), {"targets": figures.outputs}
    chosen = RowsChoice(rule=rule, link=link, notes=(QUIET_NOTE.format(wanted.moment_epsilon),))
    plan = rows_plan(
        figures,
        wanted,
        chosen,
        whitening=whitening,
        moment_plan=moment.plan,
        moment_privacy=moment.promise,
        **targets,
    )
    return Draft(plan, None, chosen.notes)


def _known(figures: PublicFigures, wanted: Wanted, moment: Moment) -> dict[str, Any]:
    return {
        "norm_bound": figures.norm_bound,
        "sigma": moment.sigma,
        "split": of_moment(figures, wanted).split(figures),
        "failure": FAILURE_SHARE * wanted.delta,
    }


def _diagonal(wanted: Wanted, unit: float) -> Update:
    """The quadratic gradient's own steps and momenta; unit: where its rate is 1."""
    kind: Any = rule_named(wanted.update)
    rounds = wanted.rounds or kind.default_rounds
    first = kind.usual_rate if wanted.learning_rate is None else wanted.learning_rate
    if wanted.update == "quadratic-gd":
        return GradientDescent(rounds=rounds, learning_rate=unit * first)
    rescaled_nag: Any = rule_named("rescaled-nag")
    found: Update = rescaled_nag(rounds=rounds, learning_rate=unit, extra=first - 1)
    return found


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
