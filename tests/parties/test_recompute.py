"""A party recomputes what a plan costs, believes no claim about it, and keeps a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from parties.account import Account
from parties.kernel.keys.key_share import KeyShare
from parties.policy import Policy
from parties.verifier.party import Party
from parties.verifier.recompute import recompute
from protocols.ckks.circuits.rows import iteration_levels
from protocols.errors import ParameterError, PolicyError, ProtocolError
from protocols.plan.kinds import plan_from_dict, with_slot_bound
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rows import RowsChoice, choose_rows
from protocols.privacy.loss.ledger import Ledger
from protocols.rows.plan import RowsPlan
from tests.support.helpers import Session, insecure, make_session

ROWS, FEATURES, PARTIES, COLLUDERS = 600, 3, 3, 1
NORM = 3**0.5  # rows in [-1, 1]^3, bias included
UPDATES = ("barrier", "gd")


@lru_cache(maxsize=4)
def certified(update: str, norm: float = NORM) -> RowsChoice:
    wanted = Wanted(
        update=update,
        rounds=3,
        colluders=COLLUDERS,
        epsilon=1.0,
    )
    figures = PublicFigures.even(rows=ROWS, features=FEATURES - 1, parties=PARTIES, norm_bound=norm)
    return choose_rows(figures, wanted)


def certify(plan: RowsPlan, update: str = "barrier") -> RowsPlan:
    """The plan with a certified setting."""
    setting = certified(update)
    link = setting.link.polynomial
    return replace(
        plan,
        link=link,
        update=setting.rule.to_dict(),
        privacy=setting.privacy,
        ckks=insecure(iteration_levels(link, setting.rule), 1024),
    )


def honest(update: str = "barrier") -> RowsPlan:
    from tests.support.helpers import make_plan

    plan = make_plan(rows=(200,) * 3, features=FEATURES, rounds=3)
    return certify(plan, update)


def with_privacy(plan: RowsPlan, **changes: Any) -> RowsPlan:
    assert plan.privacy is not None
    return replace(plan, privacy=replace(plan.privacy, **changes))


def scaled_noise(plan: RowsPlan, factor: float) -> RowsPlan:
    assert plan.privacy is not None
    p = plan.privacy
    return with_privacy(plan, sigma=p.sigma * factor, share_std=p.share_std * factor)


# -- what a plan costs ----------------------------------------------------------------------------


@pytest.mark.parametrize("update", UPDATES)
def test_an_honest_plan_costs_what_its_certificate_says(update: str) -> None:
    cost = recompute(honest(update), NORM)
    certificate = certified(update).certificate
    assert certificate is not None
    assert cost.epsilon == pytest.approx(certificate.figures["epsilon_exact"], rel=1e-9)
    assert cost.additive_delta == pytest.approx(certificate.additive_delta, rel=1e-9)
    (flooding, event), (beside, own) = cost.events, certificate.events
    assert flooding.noise_multiplier == pytest.approx(beside.noise_multiplier, rel=1e-9)
    assert event.noise_multiplier == pytest.approx(own.noise_multiplier, rel=1e-9)
    assert event.count == 3
    assert cost.epsilon <= 1


def test_a_plan_read_from_json_costs_the_same() -> None:
    import json

    plan = honest()
    again = plan_from_dict(json.loads(json.dumps(plan.to_dict())))
    assert recompute(again, NORM) == recompute(plan, NORM)


@pytest.mark.parametrize("update", UPDATES)
def test_sigma_a_thousandth_too_small_is_refused(update: str) -> None:
    plan = honest(update)
    assert plan.privacy is not None
    with pytest.raises(PolicyError, match="epsilon=1 of the plan is below 1.00"):
        recompute(scaled_noise(plan, 0.999), NORM)


@pytest.mark.parametrize("update", UPDATES)
def test_a_split_for_nobody_colluding_is_refused(update: str) -> None:
    plan = honest(update)
    assert plan.privacy is not None
    share = plan.privacy.sigma / PARTIES**0.5
    with pytest.raises(PolicyError, match=r"share_std=.* sigma / sqrt\(P - t\)"):
        recompute(with_privacy(plan, share_std=share), NORM)


@pytest.mark.parametrize("update", UPDATES)
def test_a_sensitivity_without_the_factor_two_is_refused(update: str) -> None:
    plan = honest(update)
    assert plan.privacy is not None
    p = plan.privacy
    half = with_privacy(
        plan, sensitivity=p.sensitivity / 2, sigma=p.sigma / 2, share_std=p.share_std / 2
    )
    with pytest.raises(PolicyError, match="sensitivity=.* one replaced row"):
        recompute(half, NORM)
    # Nor does the right sensitivity beside the noise for half of it.
    with pytest.raises(PolicyError, match="epsilon=1 of the plan is below"):
        recompute(with_privacy(half, sensitivity=p.sensitivity), NORM)


def test_a_plan_for_shorter_rows_than_the_party_has_is_refused() -> None:
    # Such as sqrt(m) without the bias column.
    with pytest.raises(PolicyError, match="sensitivity"):
        recompute(honest(), 2.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.5},
        {"delta": 1e-7},
        {"colluders": 3},
        {"colluders": -1},
        {"delta": 0.0},
        {"epsilon": float("nan")},
        {"sigma": float("nan")},
        {"sigma": 0.0, "share_std": 0.0},
        {"sensitivity": float("nan")},
    ],
)
def test_promises_that_the_noise_does_not_keep_are_refused(changes: dict[str, Any]) -> None:
    # ParameterError: the plan itself is impossible; a party turns both into a refusal.
    with pytest.raises((PolicyError, ParameterError)):
        recompute(with_privacy(honest(), **changes), NORM)


def test_more_rounds_than_paid_for_are_refused() -> None:
    plan = honest("gd")
    with pytest.raises(PolicyError, match="over 4 rounds"):
        recompute(replace(plan, update={**plan.update, "rounds": 4}), NORM)


def test_iterates_without_a_bound_are_refused() -> None:
    plan = honest()
    weak = {**plan.update, "weight": plan.update["weight"] / 10}
    with pytest.raises(PolicyError, match="condition norm fails"):
        recompute(replace(plan, update=weak), NORM)
    steps = {"kind": "nag", "rounds": 3, "learning_rate": 50.0}
    with pytest.raises(PolicyError, match="condition momentum_bound fails"):
        recompute(replace(plan, update=steps), NORM)


def test_a_plan_without_privacy_has_no_cost() -> None:
    with pytest.raises(PolicyError, match="no privacy noise"):
        recompute(replace(honest(), privacy=None), NORM)


# -- the ledger of a party ------------------------------------------------------------------------


def session(path: Path, budget_epsilon: float = 1.0, change: Any = None) -> Session:
    """A run with privacy; the first party keeps a ledger and asks for epsilon <= 1."""

    def party(**fields: Any) -> Party:
        if fields["name"] == "hospital-1":
            fields["ledger"] = Ledger(path=path, epsilon=budget_epsilon, delta=1e-5)
            fields["dataset"] = "patients"
            fields["policy"] = Policy(max_epsilon=1.0, min_colluders=1, allow_insecure=True)
        return Party.of(**fields)

    made = make_session(PARTIES, 200, FEATURES, 3, party=party)
    build = made.coordinator._make_plan

    def certified_plan(members: Any) -> RowsPlan:
        plan = certify(build(members))
        changed = plan if change is None else change(plan)
        made.plan = with_slot_bound(changed, NORM)
        return made.plan

    made.coordinator._make_plan = certified_plan
    return made


def entries(path: Path) -> list[str]:
    import json

    if not path.exists():
        return []
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


def stop_before(run: Session, stop: str) -> Any:
    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == stop:
            raise ProtocolError("the coordinator died")
        return run.ask(step, outgoing)

    return ask


def spent(path: Path) -> float:
    return Ledger(path=path, epsilon=1.0, delta=1e-5).spent("patients").epsilon


def test_a_finished_run_is_spent_and_the_next_is_an_overdraft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger"
    session(path).run()
    assert entries(path) == ["reserve", "spend", "commit"]
    assert 0.9 < spent(path) <= 1

    def no_key(*_: Any) -> None:
        raise AssertionError("a key was made")

    monkeypatch.setattr(KeyShare, "make", no_key)
    with pytest.raises(ProtocolError, match="privacy budget is refused: see") as caught:
        session(path).run()
    assert caught.value.culprit == "hospital-1" and "epsilon=1.4" in caplog.text
    assert entries(path) == ["reserve", "spend", "commit"]


@pytest.mark.parametrize("stop", ["reveal", "keys", "relinearise", "commit-rows"])
def test_a_run_that_never_reached_the_contribution_is_taken_back(tmp_path: Path, stop: str) -> None:
    path = tmp_path / "ledger"
    run = session(path)
    with pytest.raises(ProtocolError, match="died"):
        run.run(stop_before(run, stop))
    assert entries(path) == ["reserve"]
    assert spent(path) > 0.9  # it counts until the party is closed, and for ever if it crashes
    for party in run.parties.values():
        party.close()
    assert entries(path) == ["reserve", "rollback"]
    assert spent(path) == 0


@pytest.mark.parametrize("stop", ["refresh/0", "decrypt", "finish"])
def test_a_run_that_died_later_stays_spent(tmp_path: Path, stop: str) -> None:
    path = tmp_path / "ledger"
    run = session(path)
    with pytest.raises(ProtocolError, match="died"):
        run.run(stop_before(run, stop))
    for party in run.parties.values():
        party.close()
    assert entries(path) == ["reserve", "spend"]
    assert spent(path) > 0.9


def test_a_closed_party_changes_a_finished_run_no_more(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    run = session(path)
    run.run()
    run.parties["hospital-1"].close()
    assert entries(path) == ["reserve", "spend", "commit"]


def test_a_lying_plan_reserves_nothing_and_makes_no_key(tmp_path: Path) -> None:
    def halved(plan: RowsPlan) -> RowsPlan:
        return scaled_noise(plan, 0.5)

    run = session(tmp_path / "ledger", change=halved)
    with pytest.raises(ProtocolError, match="refuses step 'agree': epsilon=1 of the plan is below"):
        run.run()
    assert entries(tmp_path / "ledger") == []
    assert {step for step, *_ in run.recorded} == {"enrol", "agree"}


def test_a_ledger_refuses_a_run_without_privacy(tmp_path: Path) -> None:
    def open_policy(**fields: Any) -> Party:
        path = tmp_path / "ledger"
        return Party.of(**fields, ledger=Ledger(path=path, epsilon=1.0, delta=1e-5), dataset="x")

    with pytest.raises(ProtocolError, match="no privacy noise"):
        make_session(2, party=open_policy).run()


def test_a_ledger_needs_the_name_of_the_data(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="dataset='' is empty"):
        Account(Ledger(path=tmp_path / "l", epsilon=1.0, delta=1e-5), "")


def test_two_reservations_of_one_run_are_refused(tmp_path: Path) -> None:
    account = Account(Ledger(path=tmp_path / "l", epsilon=3.0, delta=1e-5), "x")
    cost = recompute(honest(), NORM)
    account.reserve(cost, "run")
    with pytest.raises(PolicyError, match="already reserved"):
        account.reserve(cost, "run")


# -- identity -------------------------------------------------------------------------------------


def test_a_plan_with_another_key_of_this_party_is_refused(tmp_path: Path) -> None:
    def foreign(plan: RowsPlan) -> RowsPlan:
        first = replace(plan.members[0], verify_key="ab" * 32)
        return replace(plan, members=(first, *plan.members[1:]))

    run = session(tmp_path / "ledger", change=foreign)
    with pytest.raises(ProtocolError, match="another verification key than this") as caught:
        run.run()
    assert caught.value.culprit == "hospital-1"
    assert entries(tmp_path / "ledger") == []
