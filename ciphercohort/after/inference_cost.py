"""What `--inference` adds to a run, before any key: sums, and its part of the promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scipy.optimize import brentq

from ciphercohort.after.sums import INSIST, following_mu, noise_std, or_epsilon, sums_wanted
from ciphercohort.job.config import SimulationConfig
from protocols.errors import PrivacyError
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.certificates.sums import MECHANISM_SHARE
from protocols.privacy.loss import epsilon_for_mu
from protocols.statistics.inference.budget import COUNTED, TOWARDS
from protocols.statistics.inference.objective import InformationObjective, ProductsObjective
from protocols.statistics.inference.reach import Reach, needs_words, reach, spread_of
from protocols.sums.one_sum import OneSum
from protocols.sums.plan import GradientPlan
from protocols.words import count, size

INFORMED = ("logistic", "poisson")
"""Models whose information is asked for; of a linear one products say it."""


def inference_forecast(config: SimulationConfig, shape: PublicFigures) -> dict[str, Any] | None:
    """JSON-ready; None where none is asked for.

    sums: how many, None where it depends on the data; bytes_per_party: of a reply; epsilon: of
    training and of the sums, each at its delta, and in all; reach: with privacy, the rows that
    intervals need, the epsilon in all that so many usual ones need, and what columns need, see
    `_needs`.
    """
    if not config.inference:
        return None
    wanted = sums_wanted(config.epsilon, config.delta, config.colluders)
    d, mu, parts = shape.num_features, None, None
    if config.epsilon is not None:
        mu, judged = following_mu(config)
        alone, after = (
            epsilon_for_mu(mu=each, delta=MECHANISM_SHARE * config.delta) if each else None
            for each in (mu, judged)
        )
        parts = {
            "training": config.for_training().epsilon,
            "inference": alone,
            "evaluation": after,
            "in_all": config.epsilon,
        }
    bound, sums = shape.ranged_bound or math.sqrt(d), 1 if mu is None else len((*TOWARDS, *COUNTED))
    task: OneSum = InformationObjective(
        model=config.model if config.model in INFORMED else "logistic",
        theta=(0.0,) * d,
        row_norm=bound,
        epsilon_in_all=config.epsilon,
    )
    if config.model == "linear":
        task, sums = (
            ProductsObjective(row_norm=bound, outputs=shape.outputs, epsilon_in_all=config.epsilon),
            1,
        )
    plan = plan_sum(shape, wanted, task, mu)
    needs = None
    if mu is not None:
        found = reach_of(plan, config.model)
        needs = _needs(found, shape, _epsilon(config, max(1.0, found.usual / shape.rows) * mu))
    return {
        "sums": sums if mu is not None or config.model == "linear" else None,
        "values": plan.length,
        "bytes_per_party": plan.cipher.num_bytes(plan.length),
        "epsilon": parts,
        "rows": shape.rows,
        "reach": needs,
    }


def reach_of(plan: GradientPlan, model: str) -> Reach:
    """Rows that intervals need, by the plan of a sum that has the whole budget of them."""
    sigma, task = noise_std(plan) * plan.num_rows, plan.task
    tau = sigma / task.row_function.kappa if isinstance(task, InformationObjective) else sigma
    return reach(model, features=plan.num_features, rows=plan.num_rows, sigma=sigma, tau=tau)


def _needs(found: Reach, shape: PublicFigures, epsilon: float = math.inf) -> dict[str, Any]:
    """For `_reach_words`; epsilon: in all, that so many usual rows need.

    too_wide: numbers whose range is too wide for the spread that the schema states, and that
    spread as a share of the range.
    """
    needed = spread_of(found.variance)
    return {
        "rows_least": found.least,
        "rows_usual": found.usual,
        "epsilon_usual": epsilon,
        "times_as_wide": None if math.isnan(found.wider) else found.wider,
        "variance": found.variance,
        "too_wide": {name: own for name, own in shape.spreads if own < needed},
    }


def check_rows(
    found: Reach, shape: PublicFigures, tell: Callable[[str], None], *, however_noisy: bool
) -> None:
    """Before a sum is opened: refuse what will leave no interval, else tell what columns need.

    however_noisy: refuse only what leaves none whatever the columns.

    Raises:
        PrivacyError: names how many rows it takes.
    """
    needs = _needs(found, shape)
    words = f"standard errors: {_reach_words(needs, shape.rows)}"
    if shape.rows < found.least:
        raise PrivacyError(f"{words}; nothing was spent on them")
    if not however_noisy and _doubtful(needs, shape.rows):
        raise PrivacyError(f"{words}; nothing was spent on them: {INSIST}")
    tell(words)


def check_inference(config: SimulationConfig, shape: PublicFigures) -> tuple[str, ...]:
    """The same before a run, of which these sums are a part: what to say beside the plan.

    Raises:
        PrivacyError: as `check_rows`.
    """
    found = inference_forecast(config, shape)
    needs = found["reach"] if found else None
    if not found or not needs or not _doubtful(needs, found["rows"]):
        return ()
    words = f"standard errors: {_reach_words(needs, found['rows'])}"
    if found["rows"] < needs["rows_least"]:
        raise PrivacyError(f"{words}; nothing was spent: leave --inference out")
    if not config.however_noisy:
        raise PrivacyError(f"{words}; nothing was spent: leave --inference out, or {INSIST}")
    return (words,)


def _doubtful(needs: Mapping[str, Any], rows: int) -> bool:
    """Whether rows are too few for usual columns, or ranges are too wide."""
    return bool(rows < needs["rows_usual"] or needs["too_wide"])


def _epsilon(config: SimulationConfig, mu: float) -> float:
    """In all, whose sums cost mu; the configuration's or more."""

    def more(epsilon: float) -> float:
        return following_mu(replace(config, epsilon=epsilon))[0] - mu

    least = highest = config.epsilon or 0.0
    if more(least) >= 0:
        return least
    while more(highest) < 0:
        highest *= 2
    return float(brentq(more, least, highest))


def inference_line(found: dict[str, Any]) -> str:
    """For a person."""
    number = "three to eight secure sums" if found["sums"] is None else None
    number = number or count(found["sums"], "secure sum")
    words = (
        f"standard errors: {number} of {found['values']:,} values, "
        f"{size(found['bytes_per_party'])} per party each"
    )
    parts = found["epsilon"]
    if parts is None:
        return f"{words}; exact"
    judged = parts["evaluation"]
    others = f", {judged:.4g} of the evaluation" if judged else ""
    return (
        f"{words}; epsilon={parts['training']:.4g} of training{others} and "
        f"{parts['inference']:.4g} of these make {parts['in_all']:g} in all; "
        f"{_reach_words(found['reach'], found['rows'])}"
    )


def _reach_words(needs: dict[str, Any], rows: int) -> str:
    usual = f"{needs['rows_usual']:,}"
    spread = "independent columns that are spread over a sixth of their ranges"
    epsilon = needs["epsilon_usual"]
    larger = or_epsilon(epsilon) if math.isfinite(epsilon) else " or a larger epsilon"
    more = f"take {usual} rows{larger}; rare categories need more rows"
    if rows < needs["rows_least"]:
        return (
            f"no intervals: {rows:,} rows are below {needs['rows_least']:,}, which any columns "
            f"need at this epsilon, and {usual}, which {spread} need; {more}"
        )
    if rows < needs["rows_usual"]:
        return (
            f"probably no intervals: {rows:,} rows are below {usual}, which {spread} need at this "
            f"epsilon; {more}"
        )
    needed = f"{needs_words(needs['variance'])}, and no column may be nearly determined by others"
    if needs["too_wide"]:
        named = ", ".join(f"{name} ({own:.2g})" for name, own in needs["too_wide"].items())
        return (
            f"probably no intervals: {needed}; by the schema, less have {named}: narrow their "
            "ranges to where nearly all values are"
        )
    wide = needs["times_as_wide"]
    told = f", about {wide:.2g} times as wide as without privacy" if wide else ""
    told += ", of columns that do not depend on each other (others are wider)" if wide else ""
    return f"intervals{told}: {needed}"
