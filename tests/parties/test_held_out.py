"""Rows that owners hold back: which, by whose coins, what a plan and a consent say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, hypergeom

from parties.agent.manifest import describe_plan
from parties.agent.owner import LABEL, CoinBox
from parties.agent.vault import Vault
from parties.coins import Coins
from parties.policy import Policy, Reason, ToldError
from parties.reader.shard import encode_shard
from parties.verifier.party import _own_and_before
from protocols.errors import DataError, ParameterError, PolicyError
from protocols.plan.held_out import HeldOut
from protocols.plan.kinds import plan_from_dict
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.statistics.evaluation.objective import EvaluationObjective
from tests.parties.agents import PASSPHRASE
from tests.sims.evaluation_tables import SCHEMA, table
from tests.support.helpers import make_plan

SHARD = encode_shard(table(200), SCHEMA)
BACK = HeldOut(share=0.2, draw="d1")
JUDGED = replace(BACK, judged=True)
MOMENT, PLAN, OTHER = "ef" * 32, "ab" * 32, "cd" * 32


def coins(label: str = "a") -> Coins:
    return Coins(SeededRandomness(1, label))


@pytest.mark.parametrize(
    ("share", "rows", "back"), [(0.2, 200, 40), (0.5, 3, 2), (0.1, 5, 1), (0.9, 11, 10)]
)
def test_both_parts_are_the_table(share: float, rows: int, back: int) -> None:
    left = HeldOut(share=share, draw="d")
    kept, held = (replace(left, judged=j).chosen(b"x" * 32, rows) for j in (False, True))
    assert (left.size(rows), replace(left, judged=True).size(rows)) == (rows - back, back)
    assert sorted([*kept, *held]) == list(range(rows)) and len(held) == back
    assert (np.diff(kept) > 0).all() and (np.diff(held) > 0).all()


@pytest.mark.parametrize(("share", "rows"), [(0.2, 2), (0.2, 1), (0.9, 4)])
def test_a_part_without_rows_is_refused(share: float, rows: int) -> None:
    with pytest.raises(ParameterError, match=f"of an owner's {rows} rows holds back"):
        HeldOut(share=share, draw="d").size(rows)


@pytest.mark.parametrize("fields", [{"share": 1.0}, {"share": 0.0}, {"draw": ""}, {"draw": "a b"}])
def test_what_names_no_part_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        HeldOut(**{"share": 0.2, "draw": "d", **fields})


def test_every_row_is_as_likely_and_two_owners_are_independent() -> None:
    """chi^2 of 4,000 tosses, two-sided at 1e-6; overlaps of two owners are hypergeometric."""
    rows, tosses = 20, 4000
    sources = [SystemRandomness(), SystemRandomness()]
    times, overlaps = np.zeros(rows), []
    for _ in range(tosses):
        secrets = [source.words(4).tobytes() for source in sources]
        own, other = (replace(BACK, judged=True).chosen(secret, rows) for secret in secrets)
        times[own] += 1
        overlaps.append(len(set(own) & set(other)))
    share = 4 / rows
    # Sampling without replacement: the times add up, variances are p (1 - p), one degree less.
    found = ((times - tosses * share) ** 2).sum() / (tosses * share * (1 - share)) * (rows - 1)
    low, high = chi2.ppf([5e-7, 1 - 5e-7], rows - 1)
    assert low < found / rows < high
    expected = hypergeom(rows, 4, 4)
    error = np.mean(overlaps) - expected.mean()
    assert abs(error) < 5 * expected.std() / np.sqrt(tosses)


def test_owners_of_the_same_rows_choose_others() -> None:
    chosen = [tuple(coins(name).chosen(BACK, SHARD, PLAN)) for name in "ab"]
    assert chosen[0] != chosen[1]
    assert chosen[0] == tuple(coins("a").chosen(BACK, SHARD, PLAN))  # a seed repeats it


def test_the_same_rows_from_disk_and_no_word_of_them_in_it(tmp_path: Path) -> None:
    vault, path = Vault(PASSPHRASE), tmp_path / "box"
    own = CoinBox(path, vault, SystemRandomness())
    first = own.chosen(BACK, SHARD, PLAN)
    again = CoinBox(path, vault, SystemRandomness())
    assert again.chosen(BACK, SHARD, "", PLAN).tolist() == first.tolist()
    judged = again.chosen(JUDGED, SHARD, "", PLAN)
    held = SHARD.only(judged)
    assert held.rows == 40 and not set(judged) & set(first)
    np.testing.assert_array_equal(held.x, SHARD.x[judged])
    np.testing.assert_array_equal(held.y, SHARD.y[judged])
    secret = own.kept["d1"].secret
    assert secret.encode() not in path.read_bytes() and secret not in f"{own} {own.kept}"
    assert bytes.fromhex(secret) not in path.read_bytes()
    assert not path.stat().st_mode & 0o077
    other = own.chosen(replace(BACK, draw="d2"), SHARD, PLAN)
    assert other.tolist() != first.tolist()
    assert set(CoinBox(path, vault, SystemRandomness()).kept) == {"d1", "d2"}


def refused(caplog: pytest.LogCaptureFixture, own: Coins, held_out: HeldOut, *plans: str) -> str:
    """What the owner alone is told."""
    caplog.clear()
    with pytest.raises(ToldError) as refusal:
        own.chosen(held_out, SHARD, *plans)
    assert str(refusal.value) == Reason.COINS.value
    return caplog.text


def test_coins_are_of_one_share_and_of_these_rows(caplog: pytest.LogCaptureFixture) -> None:
    own = coins()
    for held_out, plans in (
        (JUDGED, ("", PLAN)),
        (JUDGED, (PLAN,)),
        (BACK, ("", PLAN)),
        (BACK, ()),
    ):
        assert "no coins of draw d1" in refused(caplog, own, held_out, *plans)
    own.chosen(BACK, SHARD, PLAN)
    assert "which draw d1 was tossed for" in refused(caplog, own, replace(BACK, share=0.3), PLAN)
    with pytest.raises(DataError, match="have changed since draw d1"):
        own.chosen(JUDGED, SHARD.only(np.arange(200)[::-1]), "", PLAN)
    with pytest.raises(ParameterError, match="rows holds back"):
        own.chosen(replace(BACK, share=0.99999), SHARD, PLAN)


@pytest.mark.parametrize("held_out", [BACK, JUDGED])
def test_coins_that_were_lost_and_tossed_anew_are_not_those_of_the_training(
    held_out: HeldOut, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By whichever plan of the same draw; also where an owner has no record of sessions."""

    vault = Vault(PASSPHRASE)

    def box(kept: bool) -> Coins:
        source = SystemRandomness()
        return CoinBox(tmp_path / "box", vault, source) if kept else Coins(source)

    for kept in (True, False):
        own = box(kept)
        first = own.chosen(BACK, SHARD, MOMENT)
        assert own.chosen(BACK, SHARD, PLAN, MOMENT).tolist() == first.tolist()
        before = own.kept["d1"].plans
        used = own.chosen(held_out, SHARD, "", PLAN)
        assert own.kept["d1"].plans == before == [MOMENT, PLAN]  # a sum is not noted
        if kept:
            assert box(kept).chosen(held_out, SHARD, "", PLAN).tolist() == used.tolist()
            (tmp_path / "box").unlink()
        own = box(kept)
        refused(caplog, own, BACK, PLAN, MOMENT)  # nor are they tossed between its two runs
        other = own.chosen(BACK, SHARD, OTHER)
        assert other.tolist() != first.tolist()
        for plans in (("", PLAN), (PLAN, MOMENT), ()):
            words = refused(caplog, own, held_out, *plans)
            due = "are not those that plan" if plans else "the plan names no training"
            assert due in words and words not in Reason.COINS.value
        assert own.kept["d1"].plans == [OTHER]


def test_whose_rows_a_plan_is_on() -> None:
    """What trains is noted, and follows its moment; a sum follows its training."""
    assert _own_and_before(make_plan()) == ("", "")
    trains = make_plan(held_out=BACK)
    assert _own_and_before(trains) == (trains.digest(), "")
    whitened: Any = SimpleNamespace(
        held_out=BACK, moment_plan=MOMENT, statistic="", sums_moment=False, digest=lambda: PLAN
    )
    assert _own_and_before(whitened) == (PLAN, MOMENT)
    moment: Any = SimpleNamespace(
        held_out=BACK, statistic="a second moment", sums_moment=True, digest=lambda: MOMENT
    )
    assert _own_and_before(moment) == (MOMENT, "")
    judges = sum_plan(JUDGED)
    assert _own_and_before(judges) == ("", "")
    assert _own_and_before(replace(judges, of_training=PLAN)) == ("", PLAN)


def test_coins_of_an_earlier_release_are_of_any_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vault, path = Vault(PASSPHRASE), tmp_path / "box"
    own = CoinBox(path, vault, SystemRandomness())
    own.toss(BACK, SHARD)
    old = json.loads(vault.open(path.read_bytes(), LABEL))
    del old["d1"]["plans"]
    path.write_bytes(vault.seal(json.dumps(old).encode(), LABEL))
    again = CoinBox(path, vault, SystemRandomness())
    assert "no plans are noted of draw d1" in caplog.text
    for plans in (("", PLAN), (OTHER,), ("", PLAN)):
        assert again.chosen(BACK, SHARD, *plans).tolist() == own.chosen(BACK, SHARD).tolist()
    assert again.kept["d1"].plans is None


def sum_plan(held_out: HeldOut | None) -> Any:
    figures = PublicFigures(rows_by_party=(200, 100), num_features=6, norm_bound=3.0)
    task = EvaluationObjective(
        model="logistic",
        weights=((0.0,) * 6,),
        bins=4,
        width=1.0,
        centre=0.0,
        exact=False,
        row_norm=3.0,
    )
    wanted = Wanted(protocol="secure-aggregation", update="gd", epsilon=1.0)
    return plan_sum(figures.holding(held_out), wanted, task)


def test_a_plan_counts_the_rows_that_it_uses() -> None:
    plan = sum_plan(JUDGED)
    assert [m.rows for m in plan.members] == [40, 20] and plan.num_rows == 60
    # A row weighs five times as much in a mean over a fifth of the rows: so does its noise.
    assert plan.noise_scales[0] == pytest.approx(5 * sum_plan(None).noise_scales[0], rel=1e-6)
    members = tuple(
        Member(name=m.name, rows=rows, verify_key="0" * 64, commitment="0" * 64)
        for m, rows in zip(plan.members, (200, 100), strict=True)
    )
    assert plan.among("s", members).members[0].rows == 40
    assert plan_from_dict(plan.to_dict()) == plan


def test_rows_that_were_held_back_train_nothing() -> None:
    with pytest.raises(ParameterError, match="judge a model, and the others train it"):
        make_plan(held_out=JUDGED)
    with pytest.raises(ParameterError, match="judge a model, and the others train it"):
        sum_plan(BACK)
    assert "held_out" not in make_plan().to_dict()  # digests of other plans stay as they were
    assert make_plan(held_out=BACK).digest() != make_plan().digest()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (make_plan(held_out=BACK), "every owner holds back 0.2 of its rows, which its own secret"),
        (sum_plan(JUDGED), "uses only the 40 rows that you held back by your own secret coins"),
    ],
)
def test_consent_says_which_rows(plan: Any, words: str) -> None:
    assert words in describe_plan(plan, plan.members[0].name, 3.0)


def test_exact_sums_whose_difference_is_a_few_rows_are_refused() -> None:
    plan = SimpleNamespace(held_out=HeldOut(share=0.02, draw="d1"), privacy=None, rows_of=None)
    plan.rows_of = plan.held_out.size
    few: Any = plan
    with pytest.raises(PolicyError, match="sets 1 of this party's 50 rows apart, fewer than min_"):
        Policy().check_held_out(few, 50)
    Policy().check_held_out(few, 500)
    Policy(min_rows_apart=1).check_held_out(few, 50)
    few.privacy = object()  # noise hides it
    Policy().check_held_out(few, 50)
