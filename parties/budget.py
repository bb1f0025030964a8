"""What a run costs this party's data, recomputed from the plan and checked before any key is made.

A plan states epsilon, sigma and a sensitivity. A party believes none of them. From the update rule,
the polynomials, the rows of all parties and its **own** schema's norm bound it builds the
certificate again, so the iterate bound and the sensitivity are its own, and asks the exact
accountant what the plan's sigma gives.

Security: a plan whose epsilon is below the recomputed one, whose delta is overspent, whose iterates
are not bounded, or whose noise is split as if nobody colluded, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from protocols import arithmetic
from protocols.approximation import Approximation, Polynomial
from protocols.circuit_plan import CircuitPlan
from protocols.errors import ParameterError, PolicyError
from protocols.gradients import GradientPlan
from protocols.gram_plan import GramPlan
from protocols.lffr import LffrPlan
from protocols.plan import PrivacyPlan, RunPlan
from protocols.privacy import (
    barrier_certificate,
    ridge_certificate,
    sum_certificate,
    walk_certificate,
)
from protocols.privacy.accounting import Event, GaussianEvent
from protocols.privacy.barrier_theorem import BarrierSetting
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import Certificate, explain
from protocols.privacy.gram_certificate import gram_certificate
from protocols.privacy.lffr_certificate import lffr_certificate
from protocols.privacy.ridge_certificate import RidgeSetting
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.walk_certificate import WalkSetting
from protocols.rows import RowsPlan
from protocols.serialise import from_plain

ROUNDING = 1e-9
"""Relative slack of every comparison: a plan holds eta and kappa Theta as rounded numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a run costs, as this party computes it.

    epsilon: exact, at the certificate's delta_mechanism, against the plan's colluders; events:
    the same for the ledger; additive_delta: beside the events (iterate bound, noise grid);
    sensitivity: replace-one, L2, of one round's sum; certificate: that of the plan's setting.
    """

    epsilon: float
    events: tuple[Event, ...]
    additive_delta: float
    sensitivity: float
    certificate: Certificate


def recompute(plan: RunPlan, norm_bound: float) -> Cost:
    """The cost of a plan with privacy, for rows of norm at most `norm_bound`.

    Raises:
        PolicyError: the plan's promise does not follow from its noise; the message names the
            field, both values and the cure.
    """
    privacy = plan.privacy
    if privacy is None:
        raise PolicyError("the plan has no privacy noise: there is nothing to account for")
    if isinstance(plan, GradientPlan):
        return _cost_of_sums(plan, privacy)
    if isinstance(plan, CircuitPlan):
        try:
            arithmetic.check(plan, norm_bound)
        except ParameterError as error:
            raise PolicyError(f"the plan's privacy setting is out of range: {error}") from None
    if isinstance(plan, GramPlan):
        return _cost_of_release(plan, privacy, norm_bound)
    if isinstance(plan, LffrPlan):
        return _cost_of_lffr(plan, privacy, norm_bound)
    if not isinstance(plan, RowsPlan):
        raise PolicyError(f"protocol={plan.protocol!r} has no privacy certificate")
    try:
        split = NoiseSplit(parties=len(plan.members), colluders=privacy.colluders)
        certificate = _check(_setting(plan, privacy, split, norm_bound))
    except ParameterError as error:
        raise PolicyError(f"the plan's privacy setting is out of range: {error}") from None
    _at_least("share_std", privacy.share_std, split.share_std(privacy.sigma), "sigma / sqrt(P - t)")
    own = certificate.figures["D2_widened"]
    _at_least("sensitivity", privacy.sensitivity, own, "the bound for one replaced row")
    cost = _cost(plan, privacy, certificate, max(own, privacy.sensitivity))
    if not cost.epsilon <= privacy.epsilon * (1 + ROUNDING):
        raise PolicyError(
            f"epsilon={privacy.epsilon:.6g} of the plan is below {cost.epsilon:.6g}, which "
            f"sigma={privacy.sigma:.6g} over {plan.rounds} rounds gives for sensitivity "
            f"{cost.sensitivity:.6g} and {plan.layout.num_rows} rows: raise sigma"
        )
    for condition in certificate.conditions:
        # A nan has slack -inf.
        if not condition.satisfied and condition.slack < -ROUNDING:
            raise PolicyError(f"the plan is not certified: {explain(condition)}")
    return cost


def _cost_of_sums(plan: GradientPlan, privacy: PrivacyPlan) -> Cost:
    """Sums of rows that this party clips itself, so that the plan's bound is its own."""
    setting, smallest = plan.sum_setting(), min(plan.noise_scales)
    certificate = sum_certificate.check(setting)
    for condition in certificate.conditions:
        if not condition.satisfied:
            raise PolicyError(f"the plan is not certified: {explain(condition)}")
    _at_least("noise_scales", smallest, privacy.sigma, "sigma as stated beside the promise")
    share = plan.split.share_std(smallest)
    _at_least("noise_scales", share, privacy.share_std, "share_std as stated, a party's part")
    clip = 2 * plan.task.norm_bound(plan.queries[-1])
    _at_least("sensitivity", privacy.sensitivity, clip, "twice the clip")
    return Cost(
        epsilon=certificate.figures["epsilon_exact"],
        events=certificate.events,
        additive_delta=certificate.additive_delta,
        sensitivity=max(setting.widened),
        certificate=certificate,
    )


def _cost_of_release(plan: GramPlan, privacy: PrivacyPlan, norm_bound: float) -> Cost:
    """One release of sums; the plan's ridge and sigma against this party's own bounds."""
    try:
        setting = plan.privacy_setting(norm_bound)
        found = gram_certificate(setting, ridge=plan.ridge, sigma=privacy.sigma)
    except ParameterError as error:
        raise PolicyError(f"the plan's privacy setting is out of range: {error}") from None
    share = plan.split.share_std(privacy.sigma)
    _at_least("share_std", privacy.share_std, share, "sigma / sqrt(P - t)")
    _at_least("sensitivity", privacy.sensitivity, found.sensitivity, "the bound for one row")
    curvature = found.curvature_bound
    _at_least("curvature_bound", plan.curvature_bound, curvature, "the bound with noise")
    for condition in found.conditions:
        if not condition.satisfied and condition.slack < -ROUNDING:
            raise PolicyError(f"the plan is not certified: {explain(condition)}")
    statement = found.statement
    return Cost(
        epsilon=statement.figures["epsilon_exact"],
        events=statement.events,
        additive_delta=statement.additive_delta,
        sensitivity=found.sensitivity,
        certificate=statement,
    )


def _cost_of_lffr(plan: LffrPlan, privacy: PrivacyPlan, norm_bound: float) -> Cost:
    """Noise on every gradient; the ball that holds the weights is computed again."""
    try:
        found = lffr_certificate(plan.privacy_setting(norm_bound))
    except ParameterError as error:
        raise PolicyError(f"the plan's privacy setting is out of range: {error}") from None
    share, own = plan.split.share_std(privacy.sigma), found.figures["D_widened"]
    _at_least("share_std", privacy.share_std, share, "sigma / sqrt(P - t)")
    _at_least("sensitivity", privacy.sensitivity, own, "the bound for one replaced row")
    for condition in found.conditions:
        if not condition.satisfied and condition.slack < -ROUNDING:
            raise PolicyError(f"the plan is not certified: {explain(condition)}")
    return Cost(
        epsilon=found.figures["epsilon_exact"],
        events=found.events,
        additive_delta=found.additive_delta,
        sensitivity=own,
        certificate=found,
    )


@lru_cache(maxsize=64)
def _check(setting: BarrierSetting | RidgeSetting | WalkSetting) -> Certificate:
    if isinstance(setting, BarrierSetting):
        return barrier_certificate.check(setting)
    if isinstance(setting, WalkSetting):
        return walk_certificate.check(setting)
    return ridge_certificate.check(setting)


def _cost(
    plan: RowsPlan, privacy: PrivacyPlan, certificate: Certificate, sensitivity: float
) -> Cost:
    rows = plan.layout.num_rows
    events: tuple[GaussianEvent, ...] = ()
    budget: Budget = certificate.setting.budget
    epsilon = budget.spent(
        sigma=privacy.sigma, rounds=plan.rounds, sensitivity=sensitivity, rows=rows
    )
    if privacy.sigma > 0:
        multiplier = rows * privacy.sigma / sensitivity
        events = (
            GaussianEvent(noise_multiplier=1 / arithmetic.FLOODING_MU),
            GaussianEvent(noise_multiplier=multiplier, count=plan.rounds),
        )
    return Cost(
        epsilon=epsilon,
        events=events,
        additive_delta=certificate.additive_delta,
        sensitivity=sensitivity,
        certificate=certificate,
    )


def _at_least(field: str, stated: float, own: float, meaning: str) -> None:
    if not stated >= own * (1 - ROUNDING):
        raise PolicyError(f"{field}={stated:.6g} of the plan is below {own:.6g}, {meaning}")


# -- the certificate's setting, from a plan -------------------------------------------------------


def _setting(
    plan: RowsPlan, privacy: PrivacyPlan, split: NoiseSplit, norm_bound: float
) -> BarrierSetting | RidgeSetting | WalkSetting:
    kind, rule = plan.update["kind"], plan.update
    counted = arithmetic.counted(plan, norm_bound)
    common: dict[str, Any] = {
        "encryption_error": counted.pop("encryption_error"),
        "rows": plan.layout.num_rows,
        "features": plan.num_features,
        "norm_bound": norm_bound,
        "sigmoid": _bare(plan.link),
        "sigma": privacy.sigma,
        "budget": Budget(
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            split=split,
            **counted,
        ),
    }
    if kind in ("nag", "quadratic-nag"):
        return WalkSetting(**common, rule=plan.rule)  # type: ignore[arg-type]
    common |= {"eta": float(rule["learning_rate"]), "rounds": plan.rounds}
    if kind == "barrier":
        if rule.get("unit", 1.0) != 1.0:
            raise PolicyError(f"unit={rule['unit']} of the update is not 1: the plan is in units w")
        reciprocal = from_plain(Polynomial, rule["reciprocal"])
        return BarrierSetting(
            **common,
            theta=float(rule["theta"]),
            lam=float(rule["weight"]),
            kappa=reciprocal.low / float(rule["theta"]),
            reciprocal=_bare(reciprocal),
        )
    if kind == "gd":
        return RidgeSetting(**common, lam=float(rule["ridge"]))
    raise PolicyError(
        f"update={kind!r} has no certified bound on its iterates, hence no privacy statement"
    )


def _bare(polynomial: Polynomial) -> Approximation:
    """Certificates bound the errors of a polynomial themselves and trust no stated one."""
    return Approximation(polynomial=polynomial, max_error=0.0, max_slope=0.0)
