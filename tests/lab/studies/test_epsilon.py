"""No certificate claims less epsilon than is spent: claim, second accountant, attack."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ciphercohort.results.documents import to_json
from ciphercohort.verify.certificate import certificate_problems
from parties.reader.shard import ClampCounts, Shard
from parties.verifier.objectives import open_contributor
from parties.verifier.recompute import recompute
from protocols.errors import ParameterError, PolicyError, PrivacyError
from protocols.lffr.plan import LffrPlan
from protocols.numerics import arithmetic
from protocols.numerics.whitening import Whitening
from protocols.privacy.calibrate import sums, whitened
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rules import dual
from protocols.privacy.certificates.sums import SumSetting
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.sums import plan as gradients
from protocols.sums.plan import GradientPlan
from protocols.updates.registry import UPDATES
from sims.lab.audits import regression as audit_regression
from sims.lab.audits import second_accountant
from sims.lab.audits import sums as audit_sums
from sims.lab.audits.second_accountant import (
    gaussian_epsilon,
    sums_epsilon,
    whitened_epsilon,
)
from sims.lab.audits.whitened import both_runs
from sims.lab.studies import epsilon as study
from sims.lab.studies.epsilon import COLLUDERS, DELTA, EPSILON, Case, Found, certificate_of
from tests.sims.fake_run import SCHEMA

RUNS = 60_000
CYCLIC = Case(protocol="secure-aggregation", update="scd", schedule="cyclic")
POISSON = Case(protocol="secure-aggregation", update="scd", schedule="poisson")
WHITENED = Case(protocol="encrypted-rows", update="quadratic-gd")


def examined(case: Case, plan: GradientPlan | None = None, runs: int = RUNS) -> Found:
    rng = np.random.default_rng(5)
    if plan is not None:
        return study.examine_sums(case, plan, runs=runs, rng=rng)
    return study.examine(case, runs=runs, rng=rng)


@pytest.mark.parametrize("case", [*study.cases()], ids=lambda case: case.name)
def test_claimed_accounted_attacked(case: Case) -> None:
    found = examined(case)
    assert found.holds, found
    # Claims are tight, and attacks are attacks: otherwise the order would say little.
    assert found.accounted > 0.93 * found.claimed
    assert found.attacked > 0.1 * found.claimed


def test_every_accepted_combination_is_examined() -> None:
    found = {(case.update, case.schedule) for case in study.cases()}
    for update in UPDATES["secure-aggregation"]:
        for schedule in ("cyclic", "poisson"):
            case = Case(protocol="secure-aggregation", update=update, schedule=schedule)
            try:
                plan = study.plan_of(case)
            except ParameterError:
                continue
            assert (update, plan.objective.get("schedule", "all rows")) in found


# -- defects, put back ------------------------------------------------------------------


def honest_at_first(plan: GradientPlan) -> GradientPlan:
    """Noise in the first ceil(T / K) rounds only."""
    first = -(-plan.rounds // plan.objective["batches"])
    scales = plan.noise_scales[:first] + (plan.noise_scales[0] / 1000,) * (plan.rounds - first)
    return replace(plan, noise_scales=scales)


def test_noise_in_the_first_rounds_only_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = honest_at_first(study.plan_of(CYCLIC))
    with pytest.raises(PrivacyError, match="privacy_"):
        certificate_of(plan)
    whole = GradientPlan.sum_setting

    def first_rounds(self: GradientPlan) -> SumSetting:
        setting, first = whole(self), -(-self.rounds // self.objective["batches"])
        return replace(
            setting,
            batches=1,
            sensitivities=setting.sensitivities[:first],
            scales=setting.scales[:first],
        )

    monkeypatch.setattr(GradientPlan, "sum_setting", first_rounds)
    found = examined(CYCLIC, plan)
    assert found.claimed <= EPSILON * (1 + 1e-9)
    assert found.accounted == math.inf
    assert found.attacked > found.claimed


def test_a_dropped_schedule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dual.objective

    def dropped(case: Any) -> Any:
        return whole(replace(case, wanted=replace(case.wanted, schedule="cyclic")))

    assert study.plan_of(POISSON).noise_scales[0] < 0.7 * study.plan_of(CYCLIC).noise_scales[0]
    monkeypatch.setattr(dual, "objective", dropped)
    with pytest.raises(PrivacyError, match="schedule='poisson' was asked for, not 'cyclic'"):
        examined(POISSON)


@pytest.mark.parametrize("share", [whitened.SHARE, 4.0])
def test_a_second_moment_for_free_is_caught(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One budget for two uses: all of it for the gradients, and C beside them.

    The accountant sees a tenth of mu^2, the attack four times the whole.
    """
    whole = Whitening.charged

    def free(*args: Any, **more: Any) -> dict[str, float]:
        return {**whole(*args, **more), "paid_mu": 0.0}

    monkeypatch.setattr(whitened, "SHARE", share)
    monkeypatch.setattr(Whitening, "charged", free)
    # A plan that announces less than it spends is refused before any accountant sees it.
    monkeypatch.setattr(gradients, "_check_sum", lambda plan, task: None)
    found = examined(WHITENED)
    assert found.claimed <= EPSILON and not found.holds
    assert found.accounted > 1.04 * found.claimed
    assert (found.attacked > found.claimed) == (share > 1)


@pytest.mark.parametrize("update", ["gd", "scd"])
def test_no_point_makes_an_owner_fail(update: str) -> None:
    """At points that overflow, rows still add at most their clip, and no error tells of them."""
    schedule = "cyclic" if update == "scd" else "all rows"
    plan = study.plan_of(Case(protocol="secure-aggregation", update=update, schedule=schedule))
    x = np.random.default_rng(1).normal(size=(plan.members[0].rows, plan.length))
    x[:5] = 0.0
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    counts = ClampCounts(rows=len(x))
    shard = Shard(x=x, y=np.ones(len(x)), counts=counts, schema=audit_sums.unit_schema(plan.length))
    owner = open_contributor(plan, "p0", shard, SeededRandomness(1, "p0"))
    bound = plan.sensitivity("any") / 2 * len(x)
    for t in range(4):
        point = np.full(plan.length, 1.7e308) * (-1.0) ** np.arange(plan.length)
        with np.errstate(all="ignore"):
            added = owner.contribution(plan.queries[t], t, point)
        assert np.isfinite(added).all() and np.linalg.norm(added) <= bound


def test_public_coins_are_not_amplified() -> None:
    """A plan that says cyclic with a Poisson plan's noise is refused."""
    plan = study.plan_of(POISSON)
    public = replace(plan, objective={**plan.objective, "schedule": "cyclic"})
    with pytest.raises(PrivacyError, match="privacy_noise"):
        certificate_of(public)
    with pytest.raises(PolicyError, match="privacy_noise"):
        recompute(public, 1.0)


# -- the decryption of regressions ----------------------------------------------------------------


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flooding so weak that its part of a small promise can be seen: 2e-4 in place of 5.5e-7."""
    assert second_accountant.flooded() == arithmetic.FLOODING_MU
    monkeypatch.setattr(arithmetic, "FLOODING_MU", 2e-4)
    for module in (second_accountant, study):
        monkeypatch.setattr(module, "flooded", lambda: 2e-4)


def flooded_case(model: str) -> tuple[Case, Any]:
    """At a promise so small that the coarse decryption is a thousandth of it."""
    return Case(protocol="regression", update=model), study.regression(model, 0.01)


def uncounted(patched: pytest.MonkeyPatch) -> None:
    """Neither counted nor, as calibration would, refused."""
    patched.setattr(arithmetic, "FLOODING_MU", 0.0)
    patched.setattr(arithmetic, "check", lambda *_: None)


@pytest.mark.parametrize("model", study.PRIVATE_REGRESSIONS)
def test_a_decryption_that_is_not_counted_is_caught(
    model: str, coarse: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    query: dict[str, Any] = {"runs": 2000, "rng": np.random.default_rng(1)}
    found = study.examine_regression(*flooded_case(model), **query)
    assert found.holds and found.accounted > 0.999 * found.claimed
    uncounted(monkeypatch)
    found = study.examine_regression(*flooded_case(model), **query)
    assert not found.holds and found.accounted > 1.001 * found.claimed


@pytest.mark.parametrize("model", study.PRIVATE_REGRESSIONS)
def test_party_and_auditor_count_the_decryption(
    model: str, coarse: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = flooded_case(model)[1]
    plan, schema = chosen.template, SCHEMA
    stated = json.loads(to_json(chosen.certificate.to_dict()))
    cost = recompute(plan, schema.norm_bound)
    assert cost.epsilon == stated["epsilon"][COLLUDERS] <= 0.01 * (1 + 1e-9)
    assert cost.events[0] == GaussianEvent(noise_multiplier=1 / arithmetic.FLOODING_MU)
    assert cost.additive_delta == pytest.approx(
        arithmetic.OTHER_DELTA + stated["figures"]["delta_norm_bound"], rel=1e-6
    )
    assert list(certificate_problems(stated, plan, schema)) == []
    short = replace(plan.ckks, first_mod_bits=plan.ckks.scale_bits + 1, scale_bits=20)
    with pytest.raises(PolicyError, match="which its certificate counts"):
        recompute(replace(plan, ckks=short), schema.norm_bound)
    # A plan whose noise, and a certificate whose budget, leave the decryption out.
    with monkeypatch.context() as patched:
        uncounted(patched)
        cheaper = flooded_case(model)[1]
        free = cheaper.template
    assert free.privacy.sigma < plan.privacy.sigma * 0.9995
    with pytest.raises(PolicyError, match="noise"):
        recompute(free, schema.norm_bound)
    problems = "; ".join(
        certificate_problems(json.loads(to_json(cheaper.certificate.to_dict())), free, schema)
    )
    assert "setting.budget.spent_mu" in problems


# -- party, auditor and chooser agree -------------------------------------------------------------


def test_party_and_auditor_refuse_noise_in_the_first_rounds_only() -> None:
    plan = study.plan_of(CYCLIC)
    forged = honest_at_first(plan)
    with pytest.raises(PolicyError, match="privacy_noise"):
        recompute(forged, 1.0)
    fields = json.loads(to_json(certificate_of(plan).to_dict()))
    fields["setting"]["scales"] = list(forged.noise_scales)
    problems = "; ".join(certificate_problems(fields, forged, SCHEMA))
    assert "conditions.privacy_noise" in problems


@pytest.mark.parametrize("batch", range(4))
def test_every_batch_counts(batch: int) -> None:
    plan = study.plan_of(CYCLIC)
    scales = [s / (2 if t % 4 == batch else 1) for t, s in enumerate(plan.noise_scales)]
    forged = replace(plan, noise_scales=tuple(scales))
    with pytest.raises(PolicyError, match="privacy_noise"):
        recompute(forged, 1.0)


def test_a_norm_cannot_be_stated() -> None:
    plan = study.plan_of(Case(protocol="secure-aggregation", update="gd"))
    for norm in (1, 2):
        with pytest.raises(ParameterError, match="norm"):
            replace(plan, objective={**plan.objective, "norm": norm})


@pytest.mark.parametrize("update", ["gd", "quadratic-nag", "scd"])
def test_owners_clip_to_the_sensitivity(update: str) -> None:
    """Measured moves reach the plan's sensitivity along an axis, and never exceed it."""
    schedule = "cyclic" if update == "scd" else "all rows"
    plan = study.plan_of(Case(protocol="secure-aggregation", update=update, schedule=schedule))
    bounds = np.array([plan.sensitivity(query) for query in plan.queries])
    reached = np.zeros(len(bounds))
    for pair in audit_sums.candidates(plan):
        moved = np.linalg.norm(pair.moves, axis=1)
        assert (moved <= bounds * (1 + 1e-12)).all(), pair.name
        reached = np.maximum(reached, moved)
    first = 1 if update == "quadratic-nag" else 0
    assert reached[first:] == pytest.approx(bounds[first:], rel=1e-9)


def test_a_ledger_is_charged_for_the_costliest_batch() -> None:
    plan = study.plan_of(CYCLIC)
    events = certificate_of(plan).events
    assert len(events) == 3  # ceil(10 / 4)
    assert len(certificate_of(study.plan_of(POISSON)).events) == plan.rounds


@pytest.mark.parametrize(("promise", "batches"), [(0.02, 20), (0.3, 20), (3.0, 2)])
def test_secret_batches_are_certified_at_any_epsilon(promise: float, batches: int) -> None:
    plan = study.plan_of(POISSON, epsilon=promise, batches=batches)
    found = certificate_of(plan).figures["epsilon_exact"]
    assert 0.99 * promise < found <= promise * (1 + 1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"update": "gd", "schedule": "poisson"}, "schedule=poisson is an option of --update scd"),
        ({"update": "gd", "batches": 3}, "batches=3 is an option of --update scd"),
        ({"update": "gd", "loss": "svm"}, "loss=svm is an option of --update scd"),
        ({"update": "scd", "weights": "equal"}, "weights='equal'"),
    ],
)
def test_options_that_would_be_dropped_are_refused(options: dict[str, Any], words: str) -> None:
    from ciphercohort.job.config import SimulationConfig

    fields: dict[str, Any] = {
        "protocol": "secure-aggregation",
        "epsilon": 1.0,
        "batches": 4,
        **options,
    }
    if options["update"] != "scd" and "batches" not in options:
        del fields["batches"]
    with pytest.raises(ParameterError, match=words):
        sums.choose_sums(
            PublicFigures(rows_by_party=(50, 50, 50), num_features=3), Wanted(**fields)
        )
    if "option of" in words:
        with pytest.raises(ParameterError, match=words):
            SimulationConfig(**fields)


def test_secret_batches_without_an_accounting_are_no_plan() -> None:
    poisson = study.plan_of(POISSON)
    scales = (*poisson.noise_scales[:-1], 2 * poisson.noise_scales[-1])
    with pytest.raises(ParameterError, match="secret batches"):
        replace(poisson, noise_scales=scales)


# -- the instruments ------------------------------------------------------------------------------


def test_the_attack_sees_the_real_noise() -> None:
    """What P - t owners draw together against the law that the attack uses."""
    plan = study.plan_of(Case(protocol="secure-aggregation", update="gd"))
    many = replace(plan, length=5000)
    honest = plan.names[COLLUDERS:]
    noise = sum(many.draw_noise(0, SeededRandomness(9, name)) for name in honest)
    assert stats.kstest(noise / plan.noise_scales[0], stats.norm.cdf).pvalue > 1e-6
    assert stats.kstest(1.2 * noise / plan.noise_scales[0], stats.norm.cdf).pvalue < 1e-3


def test_half_of_the_noise_is_caught() -> None:
    """Owners that draw for half the plan's noise: claim and accountant agree, the attack does not.

    Both believe the plan; only the attack sees what is drawn.
    """
    plan = study.plan_of(CYCLIC)
    found = examined(CYCLIC)
    half = replace(plan, noise_scales=tuple(s / 2 for s in plan.noise_scales))
    pair = audit_sums.worst_pair(half)
    attacked = audit_sums.attack(
        half, pair, runs=RUNS, delta=found.delta, confidence=0.999, rng=np.random.default_rng(3)
    )
    assert attacked > found.claimed


def test_attacks_on_regressions_have_power() -> None:
    """Twice the move of the sums, and a third of LFFR's noise, refute epsilon = 1."""
    error, rng = 2.5e-4, np.random.default_rng(2)
    found = audit_regression.attack_gram(
        2 * gaussian_ratio(EPSILON), runs=RUNS, delta=DELTA, error=error, rng=rng
    )
    assert found > EPSILON
    plan = study.regression("lffr").template
    assert isinstance(plan, LffrPlan) and plan.privacy is not None
    weak = replace(plan, privacy=replace(plan.privacy, sigma=plan.privacy.sigma / 3))
    query: dict[str, Any] = {"runs": RUNS, "delta": DELTA, "additive": 0.0, "error": error}
    assert audit_regression.attack_lffr(weak, 1.0, **query, rng=rng) > EPSILON
    assert audit_regression.attack_lffr(plan, 1.0, **query, rng=rng) < EPSILON


def gaussian_ratio(epsilon: float) -> float:
    return mu_for_epsilon(epsilon=epsilon, delta=DELTA)


def test_the_second_accountant_against_known_cases() -> None:
    # mu = 1: delta(1) of the Gaussian mechanism, arXiv:1805.06530, Theorem 8.
    delta = stats.norm.cdf(-0.5) - math.e * stats.norm.cdf(-1.5)
    assert gaussian_epsilon([0.6, 0.8], delta=delta) == pytest.approx(1.0, rel=1e-6)


def test_the_second_accountant_reads_both_runs() -> None:
    """Each release's noise and bound by itself: mu^2 adds up, C has about a tenth of it."""
    rng = np.random.default_rng(4)
    made = both_runs(study.FIGURES, study.wanted_rows(WHITENED), rng)
    first, plan = (json.loads(json.dumps(each.to_dict())) for each in made[:2])

    def mu(first: Any, plan: Any) -> float:
        found = whitened_epsilon(first, plan, delta=DELTA)
        return mu_for_epsilon(epsilon=found, delta=DELTA)

    base = mu(first, plan)
    part = mu(first, {**plan, "privacy": {**plan["privacy"], "sigma": 1e3}})
    assert part**2 == pytest.approx(whitened.SHARE * base**2, rel=0.05)
    for more, release in (
        (({**first, "noise_scales": [first["noise_scales"][0] / 2]}, plan), part),
        (({**first, "objective": {**first["objective"], "row_norm": math.sqrt(2)}}, plan), part),
        (
            (first, {**plan, "update": {**plan["update"], "rounds": 4 * plan["update"]["rounds"]}}),
            math.sqrt(base**2 - part**2),
        ),
    ):
        # Twice the mu of one release.
        assert mu(*more) ** 2 == pytest.approx(base**2 + 3 * release**2, rel=1e-3)


def test_the_second_accountant_reads_every_field() -> None:
    plan = json.loads(json.dumps(study.plan_of(CYCLIC).to_dict()))
    base = sums_epsilon(plan, delta=DELTA)
    weak = {**plan, "noise_scales": [*plan["noise_scales"][:-1], plan["noise_scales"][-1] / 2]}
    assert sums_epsilon(weak, delta=DELTA) > 1.1 * base
    clip = {**plan, "objective": {**plan["objective"], "clip": 0.02}}
    assert sums_epsilon(clip, delta=DELTA) > 1.9 * base
    whole = {**plan, "objective": {**plan["objective"], "batches": 1}}
    assert sums_epsilon(whole, delta=DELTA) > 1.5 * base
