"""Every registered mechanism: chooser, party and auditor say the same, and refuse the same."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from ciphercohort.results.documents import to_json
from ciphercohort.verify.certificate import certificate_problems
from parties.verifier.recompute import recompute
from protocols.errors import ParameterError, PolicyError
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.certificates.certificate import Stated
from protocols.privacy.certificates.mechanism import KINDS, Mechanism
from protocols.privacy.loss.accounting import GaussianEvent, compose
from protocols.sums.objectives import OF_CLASSES
from tests.support.plans import certified, regression, sums

NORM = 1.0
Chosen = tuple[Any, dict[str, Any]]


def on_rows(update: str, rounds: int, epsilon: float = 2.0, rows: int = 3000) -> Calibration:
    wanted = Wanted(
        update=update,
        rounds=rounds,
        degree=7,
        colluders=1,
        epsilon=epsilon,
        profile="fast-insecure",
    )
    return calibrate(PublicFigures.even(rows=rows, features=5, parties=3), wanted)


def of_first(update: str) -> Calibration:
    """The run before one on whitened rows."""
    plan = on_rows(update, 4, rows=20_000).first
    assert plan is not None
    return certified(plan)


def of_sums(update: str = "gd", **options: str) -> Calibration:
    return certified(sums(update, **options))


def of_classes(model: str) -> Calibration:
    figures = replace(PublicFigures.even(rows=3000, features=5, parties=3), outputs=4)
    wanted = Wanted(model=model, protocol="secure-aggregation", colluders=1, epsilon=2.0)
    return calibrate(figures, replace(wanted, update="gd", rounds=4))


CASES: dict[str, Callable[[], Calibration]] = {
    "rows/barrier": lambda: on_rows("barrier", 10),
    "rows/gd": lambda: on_rows("gd", 10),
    "rows/nag": lambda: on_rows("nag", 2),
    "rows/gd whitened": lambda: on_rows("quadratic-gd", 6, rows=20_000),
    "rows/nag whitened": lambda: on_rows("quadratic-nag", 4, rows=20_000),
    "gram": lambda: regression("linear"),
    "lffr": lambda: regression("lffr"),
    "lffr, rows at home": lambda: regression("lffr", protocol="encrypted-model"),
    "gradients second-moment": lambda: of_first("quadratic-gd"),
    **{f"gradients {model}": partial(of_classes, model) for model in OF_CLASSES},
    "gradients gd": of_sums,
    "gradients scd cyclic": partial(of_sums, "scd", schedule="cyclic"),
    "gradients scd poisson": partial(of_sums, "scd", schedule="poisson"),
}
every_kind = pytest.mark.parametrize("kind", CASES)


def registered(case: str) -> str:
    return case.split()[0].rstrip(",")


def test_every_registered_mechanism_has_a_case() -> None:
    assert set(map(registered, CASES)) == set(KINDS)


@lru_cache
def chosen(kind: str) -> Chosen:
    found = CASES[kind]()
    assert found.certificate is not None
    return found.template, found.certificate.to_dict()


def promising(plan: Any, **changes: float) -> Any:
    return replace(plan, privacy=replace(plan.privacy, **changes))


def quieter(plan: Any, factor: float) -> Any:
    """Less noise, and stated so throughout."""
    promise = plan.privacy
    if hasattr(plan, "noise_scales"):
        plan = replace(plan, noise_scales=tuple(factor * each for each in plan.noise_scales))
    return promising(plan, sigma=factor * promise.sigma, share_std=factor * promise.share_std)


def audited(kind: str, plan: RunPlan) -> str:
    """What an auditor says of the chooser's certificate beside a plan."""
    certificate = json.loads(to_json(chosen(kind)[1]))
    schema: Any = SimpleNamespace(norm_bound=NORM)
    return "; ".join(certificate_problems(certificate, plan, schema))


@every_kind
def test_chooser_party_and_auditor_agree(kind: str) -> None:
    plan, certificate = chosen(kind)
    assert plan.accounted_as == registered(kind)
    mechanism = Mechanism.from_plan(plan, NORM).require()
    assert recompute(plan, NORM) == mechanism
    assert audited(kind, plan) == ""
    own = mechanism.certificate.to_dict()
    assert own["method"] == certificate["method"]
    # A search notes how good it takes its choice to be, beside the figures of the theorem.
    stated = {name: certificate["figures"][name] for name in own["figures"]}
    assert own["figures"] == pytest.approx(stated, rel=1e-12)
    assert own["epsilon"] == pytest.approx(certificate["epsilon"], rel=1e-12)
    assert mechanism.epsilon == mechanism.certificate.epsilon_by_coalition[plan.privacy.colluders]
    assert 0.99 * plan.privacy.epsilon < mechanism.epsilon <= plan.privacy.epsilon * (1 + 1e-9)
    assert mechanism.noise == plan.privacy.sigma and mechanism.sensitivity > 0
    assert mechanism.events and mechanism.conditions
    assert 0 < mechanism.additive_delta < plan.privacy.delta


def delta_of(epsilon: float, mu: float) -> float:
    """Of a Gaussian mechanism: Balle and Wang, arXiv:1805.06530, Theorem 8."""
    upper, lower = norm.logcdf(mu / 2 - epsilon / mu), norm.logcdf(-mu / 2 - epsilon / mu)
    return float(np.exp(upper) - np.exp(epsilon + lower))


@every_kind
def test_all_rounds_composed_stand_beside_the_promise(kind: str) -> None:
    """At least what a ledger books, and the same but where coins are secret."""
    plan, _ = chosen(kind)
    mechanism = Mechanism.from_plan(plan, NORM)
    found, t = mechanism.certificate, plan.privacy.colluders
    pairs = list(zip(found.epsilon_composed, found.epsilon_by_coalition, strict=True))
    assert len(pairs) == len(plan.members)
    delta = found.figures["delta_mechanism"]
    assert found.epsilon_composed[t] >= compose(mechanism.events, delta=delta) * (1 - 1e-9)
    if "poisson" in kind:
        assert all(composed > 1.5 * epsilon for composed, epsilon in pairs)
    else:
        for composed, epsilon in pairs:
            assert composed == epsilon or composed == pytest.approx(epsilon, rel=1e-9)
    if not all(isinstance(event, GaussianEvent) for event in mechanism.events):
        return
    paid = getattr(getattr(found.setting, "budget", None), "paid_mu", 0.0)
    total = sum(1 / each.noise_multiplier**2 * each.count for each in mechanism.events) + paid**2
    for k, composed in enumerate(found.epsilon_composed):
        # What k colluders leave of the noise that stays without t.
        left = (len(plan.members) - k) / (len(plan.members) - t)
        assert delta_of(composed, math.sqrt(total / left)) == pytest.approx(delta, rel=1e-6)


@every_kind
@pytest.mark.parametrize("field", ["epsilon_composed", "epsilon_holds"])
def test_an_auditor_recomputes_it(kind: str, field: str) -> None:
    plan, certificate = chosen(kind)
    schema: Any = SimpleNamespace(norm_bound=NORM)
    changed = json.loads(to_json(certificate))
    changed[field] = [0.5 * (each or 1) for each in changed[field]] if "composed" in field else ""
    assert field in "; ".join(certificate_problems(changed, plan, schema))
    del changed[field]
    assert field in "; ".join(certificate_problems(changed, plan, schema))


def stating(field: str, factor: float) -> Callable[[Any], Any]:
    return lambda plan: promising(plan, **{field: factor * getattr(plan.privacy, field)})


BELOW = r"epsilon=[\d.]+ of the plan is below .*: raise sigma"
# What is done to a plan; what a party says of it, and an auditor.
LIES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "half the noise": (lambda p: quieter(p, 0.5), BELOW, "plan.json, field privacy: epsilon="),
    "sensitivity x 2": (stating("sensitivity", 2), r"sensitivity=\S+ of .* above", "sensitivity="),
    "sensitivity / 2": (
        stating("sensitivity", 0.5),
        r"sensitivity=\S+ of .* below",
        "sensitivity=",
    ),
    **{
        f"{field} x {factor}": (
            stating(field, factor),
            "of the plan is (above|below)",
            "of the plan is",
        )
        for field in ("share_std", "sigma")
        for factor in (2, 0.5)
    },
}


@every_kind
@pytest.mark.parametrize("lie", LIES)
def test_figures_of_its_own_are_refused(kind: str, lie: str) -> None:
    change, party, auditor = LIES[lie]
    other = change(chosen(kind)[0])
    with pytest.raises(PolicyError, match=party):
        recompute(other, NORM)
    assert auditor in audited(kind, other)


@every_kind
def test_longer_rows_are_refused_or_clipped(kind: str) -> None:
    plan = chosen(kind)[0]
    if plan.accounted_as == "gradients":
        assert recompute(plan, 2 * NORM) == recompute(plan, NORM)
        return
    with pytest.raises(PolicyError):
        recompute(plan, 2 * NORM)


@every_kind
def test_a_figure_that_is_no_number_is_refused(kind: str) -> None:
    plan = chosen(kind)[0]
    for field in ("epsilon", "delta", "sigma", "share_std", "sensitivity"):
        with pytest.raises(ParameterError, match=f"{field}=nan"):
            promising(plan, **{field: math.nan})
    with pytest.raises(PolicyError, match="norm_bound=nan"):
        recompute(plan, math.nan)


@pytest.mark.parametrize(("stated", "own"), [(math.nan, 1.0), (1.0, math.nan)])
def test_nothing_is_as_stated_without_numbers(stated: float, own: float) -> None:
    assert Stated("sensitivity", stated, own, "").problem
    assert Stated("epsilon", stated, own, "", exact=False).problem


def test_another_kind_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "rows/gd"
    plan = chosen(kind)[0]
    monkeypatch.setattr(type(plan), "accounted_as", property(lambda _: "elsewhere"))
    with pytest.raises(PolicyError, match="'elsewhere' has no mechanism"):
        recompute(plan, NORM)
    assert "'elsewhere' has no mechanism" in audited(kind, plan)
