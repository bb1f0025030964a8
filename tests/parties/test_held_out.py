"""Rows that owners hold back: which, by whose coins, what a plan and a consent say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, hypergeom

from parties.agent.manifest import describe_plan
from parties.agent.owner import CoinBox
from parties.agent.vault import Vault
from parties.coins import Coins
from parties.policy import Policy
from parties.reader.shard import encode_shard
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
    chosen = [tuple(coins(name).chosen(BACK, SHARD, True)) for name in "ab"]
    assert chosen[0] != chosen[1]
    assert chosen[0] == tuple(coins("a").chosen(BACK, SHARD, True))  # a seed repeats it


def test_the_same_rows_from_disk_and_no_word_of_them_in_it(tmp_path: Path) -> None:
    vault, path = Vault(PASSPHRASE), tmp_path / "box"
    own = CoinBox(path, vault, SystemRandomness())
    first = own.chosen(BACK, SHARD, True)
    again = CoinBox(path, vault, SystemRandomness())
    assert again.chosen(BACK, SHARD).tolist() == first.tolist()
    held = SHARD.only(again.chosen(JUDGED, SHARD))
    assert held.rows == 40 and not set(again.chosen(JUDGED, SHARD)) & set(first)
    np.testing.assert_array_equal(held.x, SHARD.x[again.chosen(JUDGED, SHARD)])
    np.testing.assert_array_equal(held.y, SHARD.y[again.chosen(JUDGED, SHARD)])
    secret = own.kept["d1"].secret
    assert secret.encode() not in path.read_bytes() and secret not in f"{own} {own.kept}"
    assert bytes.fromhex(secret) not in path.read_bytes()
    assert not path.stat().st_mode & 0o077
    other = own.chosen(replace(BACK, draw="d2"), SHARD, True)
    assert other.tolist() != first.tolist()
    assert set(CoinBox(path, vault, SystemRandomness()).kept) == {"d1", "d2"}


def test_coins_are_of_one_share_and_of_these_rows() -> None:
    own = coins()
    for held_out, tosses in ((JUDGED, False), (JUDGED, True), (BACK, False)):
        with pytest.raises(PolicyError, match="no coins of draw d1"):
            own.chosen(held_out, SHARD, tosses)
    own.chosen(BACK, SHARD, tosses=True)
    with pytest.raises(PolicyError, match="which draw d1 was tossed for"):
        own.chosen(replace(BACK, share=0.3), SHARD)
    with pytest.raises(DataError, match="have changed since draw d1"):
        own.chosen(JUDGED, SHARD.only(np.arange(200)[::-1]))
    with pytest.raises(ParameterError, match="rows holds back"):
        own.chosen(replace(BACK, share=0.99999), SHARD)


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
