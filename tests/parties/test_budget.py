"""An owner's budget is told, and held to, before anybody is asked to consent."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from ciphercohort.after.sums import sums_wanted
from parties.agent.consent import Consent
from parties.agent.manifest import describe_plan
from parties.agent.owner import Owner
from parties.agent.store import SessionStore
from parties.verifier.foreseen import foreseen
from protocols.errors import ParameterError, PolicyError
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.loss import epsilon_for_mu, mu_for_epsilon
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.privacy.loss.ledger import Ledger
from protocols.statistics.inference.budget import COUNTED, TOWARDS, left_mu
from protocols.statistics.inference.objective import InformationObjective
from tests.protocols.privacy.test_whitened_ledger import DELTA, NORM, calibration

BUDGET = "[budget] of party.toml (and start the agent again)"
FIGURES = PublicFigures.even(rows=20_000, features=5, parties=3, norm_bound=NORM)
PLANS = {"whitened": "template", "second moment": "first"}
PLAN = pytest.mark.parametrize("which", PLANS.values(), ids=PLANS)


def plan_of(which: str) -> Any:
    plan = getattr(calibration("quadratic-gd"), which)
    named = enumerate(plan.members)
    return replace(plan, members=tuple(replace(m, verify_key=f"{k:064x}") for k, m in named))


def owner_of(ledger: Ledger | None) -> Any:
    """What `foreseen` asks an owner."""
    held = SimpleNamespace(_ledger=ledger, _dataset="rows")
    return SimpleNamespace(
        schema=SimpleNamespace(norm_bound=NORM, digest=str),
        foresee=partial(Owner.foresee, held),
        had_these_rows=lambda plan: True,
        asked_of=lambda plan: {},
    )


def ledger_in(folder: Path, epsilon: float = 1.0, spent: float = 0.0) -> Ledger:
    ledger = Ledger(path=folder / "ledger.jsonl", epsilon=epsilon, delta=DELTA, budget=BUDGET)
    if spent:
        noise = 1 / mu_for_epsilon(epsilon=spent, delta=DELTA)
        ledger.reserve("rows", [GaussianEvent(noise_multiplier=noise, count=1)])
    return ledger


def consent_of(
    folder: Path, plan: Any, ledger: Ledger | None, wait_seconds: float = 0.01
) -> Consent:
    """Of a person, who is not there."""
    keys, owner = plan.roster, owner_of(ledger)
    return Consent(
        plan.names[0],
        SessionStore(folder / "state", None),
        ask=True,
        own_key=keys[plan.names[0]],
        norm_bound=NORM,
        peers=lambda: keys,
        foresee=lambda each: foreseen(each, owner),
        wait_seconds=wait_seconds,
    )


@PLAN
def test_nobody_is_asked_for_what_would_be_overdrawn(
    which: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the training that a second moment announces: it alone would fit."""
    plan = plan_of(which)
    ledger = ledger_in(tmp_path, spent=0.8)
    alone = Mechanism.from_plan(plan, NORM).require()
    fits = which == "first"
    if fits:
        ledger.foresee("rows", alone.events, additive_delta=alone.additive_delta)
    before = ledger.path.read_text()
    with pytest.raises(PolicyError) as caught:
        consent_of(tmp_path, plan, ledger).require(plan)
    told = str(caught.value)
    assert "privacy budget is refused" in told and "0.8" not in told
    assert f"raise epsilon under {BUDGET}" in caplog.text
    assert "spent so far: 0.8 in 1 session)" in caplog.text
    assert ("with the training that this sum announces" in told) is fits
    assert ledger.path.read_text() == before


@PLAN
def test_whoever_consents_reads_what_is_spent_and_what_would_be(which: str, tmp_path: Path) -> None:
    plan = plan_of(which)
    ledger = ledger_in(tmp_path, epsilon=3.0, spent=0.5)
    with pytest.raises(PolicyError, match="did not answer"):
        consent_of(tmp_path, plan, ledger).require(plan)
    told = describe_plan(plan, plan.names[0], NORM, foreseen(plan, owner_of(ledger)))
    cost = Mechanism.from_plan(plan, NORM).require()
    name = ledger.reserve("rows", cost.events, additive_delta=cost.additive_delta)
    after = ledger.spent("rows").epsilon
    ledger.rollback(name)
    assert "Budget: epsilon=3, delta=1e-05 of all runs on your data together" in told
    assert f"spent so far: epsilon=0.5 in 1 session; with this one: epsilon={after:.4g}" in told
    mus = (mu_for_epsilon(epsilon=e, delta=DELTA) for e in (0.5, 1.0))
    whole = epsilon_for_mu(mu=math.hypot(*mus), delta=DELTA)
    words = f"the training that it announces as well: epsilon={whole:.4g}"
    assert (words in told) is (which == "first")


def series(epsilon: float = 1.0) -> list[Any]:
    """Plans of private standard errors, in order, as a centre announces them."""
    mu = left_mu(epsilon, DELTA, ())
    task = InformationObjective(
        model="logistic", theta=(0.0,) * FIGURES.num_features, row_norm=NORM, epsilon_in_all=epsilon
    )
    wanted = sums_wanted(epsilon, DELTA, 0)
    return [plan_sum(FIGURES, wanted, task, mu * share**0.5) for share in (*TOWARDS, *COUNTED)]


@pytest.mark.parametrize("spent", [0.0, 0.3])
def test_a_series_of_sums_is_refused_before_its_first(spent: float, tmp_path: Path) -> None:
    """Each alone would fit; with room for all of them none is refused on the way."""
    together = math.hypot(*(mu_for_epsilon(epsilon=e, delta=DELTA) for e in (1.0, spent) if e))
    enough = epsilon_for_mu(mu=together, delta=DELTA)
    for budget, fits in ((0.97 * enough, False), (enough, True)):
        folder = tmp_path / str(fits)
        folder.mkdir()
        ledger = ledger_in(folder, epsilon=budget, spent=spent)
        for k, plan in enumerate(series()):
            cost = Mechanism.from_plan(plan, NORM).require()
            ledger.foresee("rows", cost.events, additive_delta=cost.additive_delta)
            if not fits:
                with pytest.raises(PolicyError, match="with the sums after it that this sum"):
                    foreseen(plan, owner_of(ledger))
                break
            told = "\n".join(foreseen(plan, owner_of(ledger)))
            assert ("sums after it" in told) == (k < 3)
            ledger.reserve("rows", cost.events, additive_delta=cost.additive_delta)
    assert len(ledger.path.read_text().splitlines()) == 4 + bool(spent)


def test_a_run_is_not_counted_beside_itself(tmp_path: Path) -> None:
    """The same request may come again, after the reservation."""
    plan, ledger = calibration("quadratic-gd").template, ledger_in(tmp_path)
    told, cost = foreseen(plan, owner_of(ledger)), Mechanism.from_plan(plan, NORM).require()
    ledger.reserve(
        "rows", cost.events, additive_delta=cost.additive_delta, identifier=plan.digest()
    )
    assert foreseen(plan, owner_of(ledger)) == told


def test_a_budget_of_one_run_takes_its_two_sessions(tmp_path: Path) -> None:
    found, ledger = calibration("quadratic-gd"), ledger_in(tmp_path)
    for plan in (found.first, found.template):
        assert plan is not None
        foreseen(plan, owner_of(ledger))
        cost = Mechanism.from_plan(plan, NORM).require()
        ledger.reserve("rows", cost.events, additive_delta=cost.additive_delta)


def test_without_a_ledger_it_says_so() -> None:
    rows, told = foreseen(calibration("quadratic-gd").template, owner_of(None))
    assert "Second moment" in rows and "no ledger is kept" in told


def test_a_code_accepts_the_plan_that_was_shown_with_it_alone(tmp_path: Path) -> None:
    """Neither another plan later, nor the same one shown again, nor a part of a digest."""
    plan = plan_of("first")
    consent = consent_of(tmp_path, plan, None, wait_seconds=0.4)
    plans = [plan, replace(plan, session="another"), plan]

    def ask(each: Any) -> None:
        with suppress(PolicyError):
            consent.require(each)

    def shown(each: Any) -> tuple[Thread, str]:
        asked = Thread(target=ask, args=(each,))
        asked.start()
        while not (found := consent.pending()):
            sleep(0.01)
        ((code, words),) = found.items()
        assert each.digest() in words
        return asked, code

    codes = list[str]()
    for each in plans:
        asked, code = shown(each)
        digest = each.digest()
        for other in (*codes, digest, digest[:8], code[:7], ""):
            with pytest.raises(ParameterError, match="no plan waits"):
                consent.decide(other, True)
        codes.append(code)
        asked.join()
    assert len(set(codes)) == 3 and not consent._decided
    asked, code = shown(plan)
    assert consent.decide(code, True) == {"plan": plan.digest(), "accepted": True}
    asked.join()
    assert [*consent._decided.values()] == [True]


def test_a_code_ends_where_its_words_change(tmp_path: Path) -> None:
    """What is left of the budget is part of what the owner accepts."""
    plan = plan_of("first")
    ledger = ledger_in(tmp_path, epsilon=3.0)
    consent = consent_of(tmp_path, plan, ledger, wait_seconds=60.0)

    def ask() -> None:
        with suppress(PolicyError):
            consent.require(plan)

    def shown(before: str) -> tuple[str, str]:
        while (found := {c: words for c, words in consent.pending().items() if c != before}) == {}:
            sleep(0.01)
        return next(iter(found.items()))

    threads = [Thread(target=ask) for _ in range(2)]
    threads[0].start()
    first, words = shown("")
    noise = 1 / mu_for_epsilon(epsilon=0.5, delta=DELTA)
    ledger.reserve("rows", [GaussianEvent(noise_multiplier=noise, count=1)])
    threads[1].start()
    second, now = shown(first)
    assert words != now and "epsilon=0.5 in 1 session" in now and len(consent.pending()) == 1
    with pytest.raises(ParameterError, match="no plan waits"):
        consent.decide(first, True)
    consent.decide(second, True)
    for each in threads:
        each.join()
    assert not consent.pending()


def test_a_decision_is_about_the_words_that_were_shown(tmp_path: Path) -> None:
    """Also after a restart: where what was spent is another sum by now, it is asked again."""
    plan = plan_of("first")
    ledger = ledger_in(tmp_path, epsilon=3.0)

    def require(accept: bool | None, seconds: float = 60.0) -> None:
        consent = consent_of(tmp_path, plan, ledger, wait_seconds=seconds)

        def decide() -> None:
            while not consent.pending():
                sleep(0.01)
            consent.decide(*consent.pending(), accept)  # type: ignore[call-arg, arg-type]

        if accept is not None:
            Thread(target=decide).start()
        consent.require(plan)

    require(True)
    require(None)  # the same words: nobody is asked
    noise = 1 / mu_for_epsilon(epsilon=0.5, delta=DELTA)
    ledger.reserve("rows", [GaussianEvent(noise_multiplier=noise, count=1)])
    with pytest.raises(PolicyError, match="did not answer"):
        require(None, 0.05)
    with pytest.raises(PolicyError, match="the owner refuses"):
        require(False)
    (path,) = tmp_path.rglob("consent.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"words"', b'"other"') + b"\xff\n[]\n{\n")
    with pytest.raises(PolicyError, match="did not answer"):
        require(None, 0.05)
