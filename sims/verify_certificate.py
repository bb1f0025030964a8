"""Checks of certificate.json: its setting is the plan's, and the theorem says the same of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from parties.schema import Schema
from protocols import arithmetic
from protocols.approximation import Approximation, Polynomial
from protocols.circuit_plan import CircuitPlan
from protocols.errors import CohortError
from protocols.gradients import GradientPlan
from protocols.gram_plan import GramPlan
from protocols.lffr import LffrPlan
from protocols.plan import RunPlan
from protocols.privacy import (
    barrier_certificate,
    ridge_certificate,
    sum_certificate,
    walk_certificate,
)
from protocols.privacy.barrier_theorem import BarrierSetting
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import Certificate
from protocols.privacy.gram_certificate import GramRelease, gram_certificate
from protocols.privacy.lffr_certificate import LffrSetting, lffr_certificate
from protocols.privacy.ridge_certificate import RidgeSetting
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.sum_certificate import SumSetting
from protocols.privacy.walk_certificate import WalkSetting
from protocols.rows import RowsPlan
from protocols.serialise import from_plain, to_plain
from protocols.updates.catalogue import rule_from_dict
from sims.documents import to_json
from sims.verify_figures import compare

FILE = "certificate.json"


def certificate_problems(
    certificate: Mapping[str, Any] | None, plan: RunPlan, schema: Schema
) -> Iterator[str]:
    """What does not hold, is about another run, or comes out differently when computed again."""
    if certificate is None:
        yield f"{FILE} is missing, although the plan promises privacy"
        return
    method, setting = certificate["method"], certificate["setting"]
    for field, value in _expected_setting(method, plan, schema).items():
        yield from compare(FILE, f"setting.{field}", setting.get(field), value)
    if isinstance(plan, CircuitPlan):
        yield from _budget_problems(setting["budget"], plan)
        if plan.privacy:
            yield from _beside_problems(setting, plan, schema.norm_bound)
    try:
        again = check_again(method, setting)
    except CohortError as error:
        yield f"{FILE}, field setting: {error}"
        return
    computed = json.loads(to_json(again.to_dict()))
    for field in ("satisfied", "conditions", "epsilon"):
        yield from compare(FILE, field, certificate[field], computed[field])
    for name, value in computed["figures"].items():
        yield from compare(FILE, f"figures.{name}", certificate["figures"].get(name), value)
    for condition in again.conditions:
        if not condition.satisfied:
            yield (
                f"{FILE}, field conditions.{condition.name}: found {condition.left!r}, expected "
                f"{condition.relation} {condition.right!r}"
            )
    widened = {RowsPlan: "D2_widened", GramPlan: "sensitivity_widened", LffrPlan: "D_widened"}.get(
        type(plan)
    )
    if widened and plan.privacy:
        sensitivity = computed["figures"][widened]
        yield from compare(
            "plan.json", "privacy.sensitivity", plan.privacy.sensitivity, sensitivity
        )


def _expected_setting(method: str, plan: RunPlan, schema: Schema) -> dict[str, Any]:
    if isinstance(plan, GradientPlan):
        return plan.sum_setting().to_dict()
    if isinstance(plan, GramPlan) and plan.privacy:
        sigma, bound = plan.privacy.sigma, schema.norm_bound
        whole = GramRelease(
            setting=plan.privacy_setting(bound), ridge=plan.ridge, sigma=sigma
        ).to_dict()
        return {name: value for name, value in whole.items() if name != "budget"}
    if isinstance(plan, LffrPlan) and plan.privacy:
        whole = plan.privacy_setting(schema.norm_bound).to_dict()
        return {name: value for name, value in whole.items() if name != "budget"}
    if not isinstance(plan, RowsPlan):
        return {}
    update = plan.update
    expected = {
        "rows": sum(member.rows for member in plan.members),
        "features": plan.num_features,
        "norm_bound": schema.norm_bound,
        "rounds": plan.rounds,
        "sigmoid": to_plain(plan.link),
        "sigma": plan.privacy.sigma if plan.privacy else 0.0,
    }
    if method == "walk":
        return expected | {"update": dict(update)}
    if method == "barrier":
        names = {"theta": "theta", "lam": "weight", "reciprocal": "reciprocal"}
    else:
        names = {"lam": "ridge"}
    names |= {"eta": "learning_rate"}
    return expected | {ours: update.get(theirs) for ours, theirs in names.items()}


def _budget_problems(budget: Mapping[str, Any], plan: CircuitPlan) -> Iterator[str]:
    privacy, parties = plan.privacy, len(plan.members)
    expected: dict[str, Any] = {"parties": parties, "epsilon": None}
    if privacy:
        names = ("epsilon", "delta", "colluders")
        expected |= {name: getattr(privacy, name) for name in names}
        share = NoiseSplit(parties=parties, colluders=privacy.colluders).share_std(privacy.sigma)
        yield from compare("plan.json", "privacy.share_std", privacy.share_std, share)
    for field, value in expected.items():
        yield from compare(FILE, f"setting.budget.{field}", budget.get(field), value)


def _beside_problems(
    setting: Mapping[str, Any], plan: CircuitPlan, norm_bound: float
) -> Iterator[str]:
    """What the arithmetic costs, from the plan alone."""
    arithmetic.check(plan, norm_bound)
    beside = arithmetic.counted(plan, norm_bound)
    error = beside.pop("encryption_error")
    # A setting without this field has nothing that it could widen.
    found = setting.get("encryption_error", 0.0)
    yield from compare(FILE, "setting.encryption_error", found, error)
    for field, value in beside.items():
        found = setting["budget"].get(field)
        yield from compare(FILE, f"setting.budget.{field}", found, value)


def check_again(method: str, setting: Mapping[str, Any]) -> Certificate:
    """The certificate of a setting as certificate.json writes it.

    Raises:
        ParameterError: a field is out of range.
    """
    if method == "sums":
        return sum_certificate.check(SumSetting.from_dict(dict(setting)))
    if method == "lffr":
        return lffr_certificate(LffrSetting.from_dict(setting))
    if method == "gram":
        release = GramRelease.from_dict(setting)
        return gram_certificate(release.setting, ridge=release.ridge, sigma=release.sigma).statement
    fields = {**setting, "sigmoid": _approximation(setting["sigmoid"])}
    budget = dict(setting["budget"])
    split = NoiseSplit(parties=budget.pop("parties"), colluders=budget.pop("colluders"))
    fields["budget"] = Budget(split=split, **budget)
    if method == "walk":
        fields["rule"] = rule_from_dict(fields.pop("update"))
        del fields["rounds"]
        return walk_certificate.check(WalkSetting(**fields))
    if method == "barrier":
        fields["reciprocal"] = _approximation(setting["reciprocal"])
        return barrier_certificate.check(BarrierSetting(**fields))
    return ridge_certificate.check(RidgeSetting(**fields))


def _approximation(polynomial: Mapping[str, Any]) -> Approximation:
    """Wrap a polynomial; the certificates bound its errors themselves and trust no stated one."""
    unknown = float("nan")
    found = from_plain(Polynomial, polynomial)
    return Approximation(polynomial=found, max_error=unknown, max_slope=unknown)
