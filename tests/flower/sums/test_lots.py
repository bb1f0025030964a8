"""Privacy of single records: their clip, their coins, their noise, and what it is checked with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import Privacy, SecureSum, SecureSumMod, lot
from ciphercohort.flower.lots import Changes
from ciphercohort.flower.memory import RECORD, Memory, Owner
from ciphercohort.flower.rounds import WORDS
from protocols.aggregate.quorum import Quorum
from protocols.errors import ParameterError, PolicyError
from protocols.privacy.laws.seeded import SeededRandomness
from tests.flower.federation import FIRST_NODE, Federation, start

CLIENTS, ROWS, VALUES = 4, 200, 6
MODS = [SecureSumMod(privacy=True)]
MODEL = {"w": np.zeros((2, VALUES // 2))}


def plan(**changes: Any) -> Privacy:
    given = {"epsilon": 4.0, "delta": 1e-5, "rounds": 3, "clip": 1.0, "sampling": 0.5}
    return Privacy.for_rounds(**{**given, "records": CLIENTS * ROWS, **changes})


def rows_of(client: int) -> np.ndarray:
    return np.random.default_rng(client).normal(0.3, 1, (ROWS, VALUES))


def reply(changes: np.ndarray) -> RecordDict:
    metrics = MetricRecord({"num-examples": 1})  # a strategy's weight: it does not leave
    return RecordDict({"arrays": ArrayRecord({"w": Array(changes)}), "metrics": metrics})


def by_record(message: Message, context: Context) -> RecordDict:
    rows = rows_of(int(context.node_config["partition-id"]))
    return reply(rows[lot(ROWS)].reshape(-1, 2, VALUES // 2))


def trained(
    train: Callable[[Message, Context], RecordDict], privacy: Privacy, rounds: int = 1, **more: Any
) -> tuple[np.ndarray, Federation]:
    grid = Federation(CLIENTS, mods=MODS, train=train, **more)
    strategy = SecureSum(FedAvg(fraction_evaluate=0.0), privacy=privacy)
    result = strategy.start(grid, start(MODEL), num_rounds=rounds)
    return result.arrays["w"].numpy().ravel(), grid


def test_a_mean_of_clipped_records() -> None:
    """Expected: q N terms of the clipped rows' mean; with hardly any noise."""
    privacy = Privacy(
        clip=1.0,
        noise_multiplier=1e-3,
        rounds=1,
        epsilon=1e12,
        delta=1e-5,
        records=CLIENTS * ROWS,
    )
    rows = np.concatenate([rows_of(k) for k in range(CLIENTS)])
    wanted = (rows / np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]).mean(axis=0)
    words, quorum = np.zeros(VALUES, np.int64), Quorum.of(CLIENTS, 1 / 3)
    for k in range(CLIENTS):
        changes = Changes((rows_of(k)[:, :2], rows_of(k)[:, 2:]), ROWS)
        words += changes.words(privacy, quorum, SeededRandomness(k))
    unit = 1 / (privacy.units(quorum) * privacy.expected(quorum, CLIENTS))
    assert np.abs(words * unit - wanted).max() < 6 * privacy.noise_of_mean(quorum, CLIENTS)
    assert privacy.noise_of_mean(quorum, CLIENTS) < 1e-4


def test_a_record_moves_the_sum_by_its_clip_at_most() -> None:
    """In whole units, whatever the others are; NaN and infinity count as nothing."""
    privacy, quorum = plan(), Quorum.of(CLIENTS, 1 / 3)
    limit = privacy.clip * privacy.units(quorum)

    def sums(rows: np.ndarray) -> np.ndarray:
        arrays = (rows[:, :1], rows[:, 1:])
        return Changes(arrays, len(rows)).words(privacy, quorum, SeededRandomness(5)).astype(int)

    others = rows_of(0) * 10.0 ** np.arange(-6, 6).repeat(17)[:ROWS, None]
    without = sums(np.vstack([others, np.zeros(VALUES)]))
    for odd in (1e-30, 1.0, 1e30, 1e150):
        moved = sums(np.vstack([others, np.full(VALUES, odd)])) - without
        assert np.linalg.norm(moved) <= limit
        assert odd < 1 or np.linalg.norm(moved) > 0.99 * limit
    for odd in (np.nan, np.inf, -np.inf):
        assert np.array_equal(sums(np.vstack([others, np.full(VALUES, odd)])), without)


def test_the_noise_is_that_of_the_plan() -> None:
    """Two-sided: 5 % more or less fails; 4000 values, p < 1e-3 either way."""
    privacy, quorum = plan(), Quorum.of(CLIENTS, 1 / 3)
    empty = Changes((np.zeros((0, 4000)),), 0)
    noise = empty.words(privacy, quorum, SeededRandomness(1))
    wanted = privacy.noise_multiplier * privacy.units(quorum)
    wanted /= np.sqrt(quorum.needed - quorum.colluders)
    assert 0.96 < noise.std() / wanted < 1.04


def test_coins_are_of_the_plans_chance_and_new_in_every_round() -> None:
    drawn: list[np.ndarray] = []

    def train(message: Message, context: Context) -> RecordDict:
        drawn.append(lot(5000))
        return reply(np.zeros((len(drawn[-1]), 2, VALUES // 2)))

    trained(train, plan(sampling=0.3), rounds=2)
    counts = [len(chosen) for chosen in drawn]
    # Six deviations of a binomial number.
    assert len(counts) == 2 * CLIENTS
    assert all(abs(count - 1500) < 6 * np.sqrt(5000 * 0.3 * 0.7) for count in counts)
    assert len({chosen.tobytes() for chosen in drawn}) == len(drawn)


@pytest.mark.parametrize("sampling", [0.3, 1.0])
def test_its_epsilon_is_that_of_another_accountant(sampling: float) -> None:
    """dp_accounting's own, replace one: a record adds at most clip, so that the sum moves by 2."""
    privacy = plan(sampling=sampling, rounds=30)
    accountant = pld_privacy_accountant.PLDAccountant(
        dp_accounting.NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4
    )
    event = dp_accounting.GaussianDpEvent(privacy.noise_multiplier)
    sampled = dp_accounting.PoissonSampledDpEvent(sampling, event) if sampling < 1 else event
    found = accountant.compose(sampled, 30).get_epsilon(0.9e-5)
    assert 0.98 * privacy.epsilon < found <= privacy.epsilon * 1.001


def test_a_run_and_what_it_has_spent() -> None:
    privacy = plan()
    weights, grid = trained(by_record, privacy, rounds=3)
    assert np.isfinite(weights).all() and np.abs(weights).max() > 0
    node = grid.contexts[FIRST_NODE]
    memory = Memory.load(node, Owner.of(node))
    assert memory.spent["rounds"] == 3 and memory.spent["plan"]["records"] == CLIENTS * ROWS
    with pytest.raises(ParameterError, match="exceeds the rounds=3"):
        trained(by_record, privacy, rounds=4)


def whole(message: Message, context: Context) -> RecordDict:
    return reply(message.content["arrays"]["w"].numpy())


def more_rows(message: Message, context: Context) -> RecordDict:
    chosen = lot(ROWS)
    return reply(np.zeros((len(chosen) + 1, 2, VALUES // 2)))


def twice(message: Message, context: Context) -> RecordDict:
    lot(ROWS)
    return by_record(message, context)


def raising(message: Message, context: Context) -> RecordDict:
    lot(ROWS)
    raise ValueError("Input contains NaN.")  # as scikit-learn does


def raising_at_once(message: Message, context: Context) -> RecordDict:
    raise MemoryError


def texts(message: Message, context: Context) -> RecordDict:
    lot(ROWS)
    return RecordDict({"metrics": MetricRecord({"num-examples": 1})})


def strange(message: Message, context: Context) -> RecordDict:
    return reply(np.array(["a", "b"]))


FAULTS = [more_rows, twice, raising, raising_at_once, texts, strange]


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("records", [CLIENTS * ROWS, 0])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_app_that_fails_tells_nothing_and_is_charged(
    fault: Callable[[Message, Context], RecordDict], records: int, first: int
) -> None:
    """Whether it fails may depend on one record, and on whether its coin was drawn.

    One client's app fails, in the first round or the second: the server sees the same messages of
    it as of all others, and its account the same rounds.
    """
    rounds = 0

    def train(message: Message, context: Context) -> RecordDict:
        nonlocal rounds
        if context.node_config["partition-id"] == 2:
            rounds += 1
            if rounds == first:
                return fault(message, context)
        return by_record(message, context) if records else whole(message, context)

    _, grid = trained(train, plan(records=records), rounds=3)
    assert not grid.errors
    answers = grid.of_step("sum")
    assert len(answers) == 3 * CLIENTS
    assert len({answer.content.config_records[RECORD]["layout"] for _, answer in answers}) == 1
    assert (
        len({len(answer.content.array_records[WORDS]["words"].data) for _, answer in answers}) == 1
    )
    for context in grid.contexts.values():
        assert Memory.load(context, Owner.of(context)).spent["rounds"] == 3


@pytest.mark.parametrize(("train", "records"), [(whole, CLIENTS * ROWS), (by_record, 0)])
def test_an_app_of_the_other_kind_adds_noise_alone(
    train: Callable[[Message, Context], RecordDict], records: int, caplog: pytest.LogCaptureFixture
) -> None:
    _, grid = trained(train, plan(records=records))
    assert not grid.errors
    assert caplog.text.count("adds noise alone in this round") == CLIENTS
    with pytest.raises(PolicyError, match="records=N"):
        lot(3)


def test_the_number_of_records_is_one() -> None:
    with pytest.raises(ParameterError, match="records=-1"):
        plan(records=-1)
