"""What is summed to judge a model, and whether privacy noise would leave anything of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ciphercohort.after.sums import INSIST, noise_std, or_epsilon
from ciphercohort.results.predict import ReleasedModel
from protocols.errors import ParameterError
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.calibrate.one_sum import whole_mu
from protocols.privacy.certificates.sums import MECHANISM_SHARE
from protocols.privacy.loss import epsilon_for_mu
from protocols.statistics.evaluation.noise import foreseen
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.sums.plan import GradientPlan

BINS, PRIVATE_BINS = 4096, 64
"""Exact counts cost nothing but bytes; each noisy one adds to the error."""
LONGEST, IN_BINS = 40_000, 1 << 15
"""Values of a sum, which a message's header takes; and of its bins, of all tables and classes."""
REACH, PRIVATE_REACH = 16.0, 6.0
"""Largest distance of a bin's edge from 0 [log-odds]."""


def check_noise(
    plan: GradientPlan, wanted: Wanted, sizes: Mapping[str, int], *, however_noisy: bool
) -> None:
    """Refuse an evaluation of which noise will leave nothing, before anything is spent.

    wanted: the promise that the sum is a fixed part of; sizes: rows by party; however_noisy: it is
    wanted all the same.

    Raises:
        ParameterError: names the noise, its bound, and the rows or the epsilon that are needed.
    """
    task = plan.task
    if however_noisy or wanted.epsilon is None or not isinstance(task, EvaluationObjective):
        return
    std = noise_std(plan) * plan.num_rows
    whole = {"": plan.num_rows}
    for site, rows in {**whole, **{name: sizes[name] for name in task.sites}}.items():
        found = foreseen(task, rows, std)
        if found.excess <= 1:
            continue
        mu = found.excess * whole_mu(wanted)
        epsilon = epsilon_for_mu(mu=mu, delta=MECHANISM_SHARE * wanted.delta)
        cure = f"leave {site} out of sites, or {INSIST}" if site else f"or {INSIST}"
        raise ParameterError(
            f"epsilon={wanted.epsilon:g} on {rows:,} rows{' of ' * bool(site)}{site}: the noise of "
            f"{found.figure} would have a standard deviation of about {found.std:.2g}, and above "
            f"{found.largest:g} it says nothing; nothing was spent: take "
            f"{math.ceil(rows * found.excess):,} rows{or_epsilon(epsilon)}, {cure}"
        )


def objective(
    model: ReleasedModel,
    *,
    private: bool,
    threshold: float = 0.5,
    bins: int | None = None,
    sites: tuple[str, ...] = (),
) -> EvaluationObjective:
    """What is summed to judge a model; its bins follow from public numbers alone.

    Raises:
        ParameterError: see `EvaluationObjective`; a threshold where none decides, or none at all.
    """
    if not 0 < threshold < 1:
        raise ParameterError(f"threshold={threshold} is outside (0, 1)")
    if threshold != 0.5 and (model.fitted.several or model.fitted.numeric):
        why = "the likeliest of several classes is called"
        why = "numbers are predicted" if model.fitted.numeric else why
        raise ParameterError(f"threshold={threshold:g} of {model.model}: {why}; leave it out")
    centre = math.log(threshold / (1 - threshold))
    return objective_at(model, centre, private=private, bins=bins, sites=sites)


def objective_at(
    model: ReleasedModel,
    centre: float,
    *,
    private: bool,
    bins: int | None = None,
    sites: tuple[str, ...] = (),
) -> EvaluationObjective:
    """The same; centre: of the threshold [log-odds], 0 where none decides. No bin depends on it."""
    several = model.fitted.several
    weights = model.weights[None] if model.weights.ndim == 1 else model.weights.T
    bound = model.encoding.norm_bound
    reach = bound * float(np.linalg.norm(weights, axis=1).max())
    if several:
        # Log-odds of a probability, of scores that differ by at most twice that.
        reach = 2 * reach + math.log(len(weights))
    reach = min(max(reach, 1e-6), PRIVATE_REACH if private else REACH)
    fitting = 2 * (IN_BINS // (4 * len(weights) * (1 + len(sites))))
    count = bins or (PRIVATE_BINS if private else min(BINS, max(fitting, PRIVATE_BINS)))
    task = EvaluationObjective(
        model=model.model,
        weights=tuple(tuple(row) for row in weights.tolist()),
        bins=count,
        width=2 * reach / count,
        centre=centre,
        exact=not private,
        row_norm=bound,
        sites=sites,
        of_ranges=bool(model.view),
    )
    length = task.length(weights.shape[1])
    if length > LONGEST:
        raise ParameterError(
            f"sites={','.join(sites)}: {1 + len(sites)} tables in {count} bins are {length:,} "
            f"values, more than {LONGEST:,}: name fewer sites, or take fewer bins"
        )
    return task
