"""Certified noise: what is released, what it costs, an outside accountant, and an attack."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from scipy import stats

from ciphercohort.flower import Privacy, SecureSum
from ciphercohort.flower.memory import LEDGER, RECORD, Memory, Owner, alone
from ciphercohort.flower.plan import NOISE_SHARE, SumPlan
from ciphercohort.flower.private import DATASET, Account, noisy_words
from ciphercohort.flower.records import BLOCK, Bases, Reply
from ciphercohort.flower.server import SecureGrid
from protocols.aggregate.quorum import Quorum
from protocols.errors import MessageError, ParameterError, PrivacyError, ProtocolError
from protocols.privacy.laws import ExpandedRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss.ledger import Ledger
from tests.flower.federation import FIRST_NODE, Federation, start

DELTA = 1e-5
ROUNDS = 50
ZERO = {"x": np.zeros(4, np.float32)}


def moved(by: Callable[[int], Any]) -> Callable[[Message, Context], RecordDict]:
    """Training that moves the model by a vector of the client's."""

    def train(message: Message, context: Context) -> RecordDict:
        x = message.content["arrays"]["x"].numpy()
        own = np.asarray(by(int(context.node_config["partition-id"])), x.dtype)
        metrics = MetricRecord({"num-examples": 100, "loss": 1.0})
        arrays = ArrayRecord({"x": Array(x + own)})
        return RecordDict({"arrays": arrays, "metrics": metrics})

    return train


def run(federation: Federation, privacy: Privacy, rounds: int, **options: Any) -> Any:
    strategy = SecureSum(FedAvg(**options), privacy=privacy)
    arrays = ArrayRecord({name: Array(value) for name, value in ZERO.items()})
    return strategy.start(federation, arrays, num_rounds=rounds)


def account_of(federation: Federation, client: int) -> Account:
    context = federation.contexts[FIRST_NODE + client]
    return Account(Memory.load(context, Owner.of(context)).spent)


def library_epsilon(multiplier: float, rounds: int, rate: float = 1.0) -> float:
    """dp-accounting, replace-one, as far above the truth as its grid makes it."""
    if rate == 1:
        # Releases of sensitivity 2 C at std z C.
        one = from_gaussian_mechanism(multiplier, sensitivity=2.0, sampling_prob=1.0)
        return float(one.self_compose(rounds).get_epsilon_for_delta(NOISE_SHARE * DELTA))
    accountant = pld_privacy_accountant.PLDAccountant(
        dp_accounting.NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4
    )
    gaussian = dp_accounting.GaussianDpEvent(multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, gaussian), rounds)
    return float(accountant.get_epsilon(NOISE_SHARE * DELTA))


def reply_of(x: np.ndarray) -> Reply:
    """An update, as a client's own function returns it."""
    content = RecordDict(
        {"a": ArrayRecord({"x": Array(x)}), "m": MetricRecord({"num-examples": 1})}
    )
    return Reply.of(content, Bases(RecordDict()), "num-examples")


# -- what is released ------------------------------------------------------------------------------


def test_updates_are_clipped_and_metrics_stay_at_home() -> None:
    """Forty clients of norm 5, twelve the other way, clipped to 1: 0.4 and not 2, within 5 std."""
    privacy = Privacy.for_rounds(epsilon=8.0, delta=DELTA, rounds=1, clip=1.0)
    federation = Federation(40, train=moved(lambda k: [5.0 * (-1) ** (k < 12), 0, 0, 0]))
    result = run(federation, privacy, 1, fraction_evaluate=0.5)
    std = privacy.share_std(Quorum(clients=40, lost=13)) / math.sqrt(40)
    assert abs(result.arrays["x"].numpy()[0] - 0.4) < 5 * std < 0.3
    assert dict(result.train_metrics_clientapp[1]) == {}
    assert result.evaluate_metrics_clientapp == {}
    assert {len(r.content[RECORD]) for _, r in federation.of_step("sum")} == {2}


@pytest.mark.parametrize("factor", [0.95, 1.0, 1.05])
def test_a_share_has_its_variance(factor: float) -> None:
    """And 5 % less or more would be rejected. Seven of ten must stay, three of them may collude."""
    privacy = Privacy(clip=2.0, noise_multiplier=1.5, rounds=1, epsilon=1.0, delta=DELTA)
    quorum = Quorum(clients=10, lost=3)
    n = 20_000
    bases, reply = Bases(RecordDict()), reply_of(np.zeros(n))
    words = noisy_words(privacy, quorum, reply, bases, SeededRandomness(1))
    std = privacy.noise_multiplier * privacy.clip / math.sqrt(7 - 3) * factor
    statistic = float(((words / privacy.units(quorum) / std) ** 2).sum())
    p = 2 * min(stats.chi2.cdf(statistic, n), stats.chi2.sf(statistic, n))
    assert (p > 1e-4) == (factor == 1.0)
    # A grid of 2^20 units a share and more.
    assert privacy.share_units(quorum) > 1 << 20


@pytest.mark.parametrize("norm", [0.0, 1 + 1e-12, 7.0])
def test_no_update_is_longer_than_the_clip(norm: float) -> None:
    """In units, as integers; rounding does not help either."""
    privacy = Privacy(clip=1.0, noise_multiplier=1e-9, rounds=1, epsilon=1.0, delta=DELTA)
    quorum = Quorum(clients=10, lost=3)
    x = np.random.default_rng(0).normal(size=1000)
    x *= norm / np.linalg.norm(x)
    reply = reply_of(x)
    noise = SeededRandomness(0)
    words = noisy_words(privacy, quorum, reply, Bases(RecordDict()), noise).astype(object)
    length = math.isqrt(int((words * words).sum()))
    assert length <= privacy.units(quorum) * privacy.clip + 40 * privacy.share_units(quorum)
    if norm >= 1:
        assert length > 0.99 * privacy.units(quorum)


def test_an_update_that_is_not_finite_counts_as_zero() -> None:
    """A refusal would tell of it, and so would one of an absurd weight."""

    def odd(client: int) -> list[float]:
        return [math.nan] * 4 if client == 0 else [0.5, 0, 0, 0]

    privacy = Privacy.for_rounds(epsilon=8.0, delta=DELTA, rounds=1, clip=1.0)
    federation = Federation(40, train=moved(odd))
    result = run(federation, privacy, 1, fraction_evaluate=0.0)
    std = privacy.share_std(Quorum(clients=40, lost=13)) / math.sqrt(40)
    assert abs(result.arrays["x"].numpy()[0] - 0.5 * 39 / 40) < 5 * std
    assert federation.errors == []
    content = RecordDict({"m": MetricRecord({"num-examples": -1})})
    assert Reply.of(content, Bases(RecordDict()), "num-examples", weigh=False).weight == 1


# -- what it costs ---------------------------------------------------------------------------------


def test_epsilon_over_fifty_rounds_with_half_the_clients_sampled(tmp_path: Path) -> None:
    """The server samples, so nothing is amplified: a client pays for the rounds it is in.

    Its account, its ledger on disk and dp-accounting agree; nobody exceeds the plan's epsilon.
    """
    privacy = Privacy.for_rounds(epsilon=4.0, delta=DELTA, rounds=ROUNDS, clip=1.0)
    config = {"secure-sum-epsilon": 4.0, "secure-sum-delta": DELTA}
    configs = {k: {**config, "secure-sum-home": str(tmp_path / str(k))} for k in range(6)}
    federation = Federation(6, train=moved(lambda k: [1.0, 0, 0, 0]), configs=configs)
    run(federation, privacy, ROUNDS, fraction_train=0.5, min_train_nodes=3, fraction_evaluate=0.0)
    took_part = [r.metadata.dst_node_id - FIRST_NODE for r, _ in federation.of_step("sum")]
    assert len(took_part) == 3 * ROUNDS
    for client in range(6):
        rounds = took_part.count(client)
        account = account_of(federation, client)
        assert account.rounds == rounds < ROUNDS
        own = account.epsilon
        library = library_epsilon(privacy.noise_multiplier, rounds)
        # The library's grid errs upwards; ours has what the discrete noise costs in delta.
        assert library * (1 - 1e-3) <= own <= library * (1 + 1e-3)
        path = tmp_path / str(client) / LEDGER
        spent = Ledger(path=path, epsilon=4.0, delta=NOISE_SHARE * DELTA).spent(DATASET)
        assert spent.runs == rounds and abs(spent.epsilon / own - 1) < 1e-3


def test_secret_coins_amplify_and_the_servers_choice_does_not() -> None:
    """Half of the clients by their own coins: dp-accounting's figure for Poisson sampling."""
    privacy = Privacy.for_rounds(epsilon=2.0, delta=DELTA, rounds=ROUNDS, clip=1.0, sampling=0.5)
    whole = Privacy.for_rounds(epsilon=2.0, delta=DELTA, rounds=ROUNDS, clip=1.0)
    assert privacy.noise_multiplier < 0.7 * whole.noise_multiplier
    account, quorum = Account({}), Quorum(clients=10, lost=3)
    owner = Owner("x", None, None, False, 0, None, None)
    for t in range(ROUNDS):
        account.charge(privacy, quorum, 100, owner, str(t))
    own = account.epsilon
    library = library_epsilon(privacy.noise_multiplier, ROUNDS, rate=0.5)
    assert abs(own / library - 1) < 5e-3 and own <= 2.0 * (1 + 1e-6)
    with pytest.raises(PrivacyError, match="all rounds=50 of the plan are spent"):
        account.charge(privacy, quorum, 100, owner, "more")


def test_coins_are_fair() -> None:
    """A client that stays out sends noise alone; the mean divides by the expected number."""
    privacy = Privacy(
        clip=1.0, noise_multiplier=1e-6, rounds=1, epsilon=1.0, delta=DELTA, sampling=0.25
    )
    quorum, bases = Quorum(clients=10, lost=3), Bases(RecordDict())
    reply = reply_of(np.ones(1))
    first = [
        noisy_words(privacy, quorum, reply, bases, ExpandedRandomness())[0] for _ in range(500)
    ]
    joined = int((np.array(first) > privacy.units(quorum) / 2).sum())
    # 125, within 5 deviations.
    assert abs(joined - 125) < 5 * math.sqrt(500 * 0.25 * 0.75)


def test_a_client_refuses_the_round_that_would_be_too_many() -> None:
    privacy = Privacy.for_rounds(epsilon=1.0, delta=DELTA, rounds=3, clip=1.0)
    federation = Federation(4, train=moved(lambda k: [1.0, 0, 0, 0]))
    # A server that does not look at the plan itself, as `SecureSum` does.
    grid, arrays = SecureGrid(federation, SumPlan(privacy=privacy)), start(ZERO)
    result = FedAvg(fraction_evaluate=0.0).start(grid, arrays, num_rounds=4)
    assert set(result.train_metrics_clientapp) == {1, 2, 3}
    assert account_of(federation, 0).rounds == 3
    assert account_of(federation, 0).epsilon == pytest.approx(1.0, rel=1e-3)
    assert any("all rounds=3 of the plan are spent" in error for error in federation.errors)


def test_a_ledger_outlives_runs(tmp_path: Path) -> None:
    config = {
        k: {
            "secure-sum-home": str(tmp_path / str(k)),
            "secure-sum-epsilon": 1.5,
            "secure-sum-delta": DELTA,
        }
        for k in range(3)
    }
    privacy = Privacy.for_rounds(epsilon=1.0, delta=DELTA, rounds=1, clip=1.0)

    def once(number: int) -> None:
        federation = Federation(3, train=moved(lambda k: [1.0] * 4), configs=config)
        for context in federation.contexts.values():
            context.run_id = number
        run(federation, privacy, 1)

    once(1)
    with pytest.raises(ProtocolError, match="all rounds=1 of the plan are spent"):
        once(1)
    once(2)
    with pytest.raises(ProtocolError, match=r"exceeds the budget 1\.5"):
        once(3)


def test_a_plan_may_not_change_within_a_run_nor_promise_too_much() -> None:
    account, quorum = Account({}), Quorum(clients=4, lost=1)
    owner = Owner("x", None, None, False, 0, None, None)
    privacy = Privacy.for_rounds(epsilon=1.0, delta=DELTA, rounds=5, clip=1.0)
    for less in (replace(privacy, rounds=6), replace(privacy, epsilon=0.99)):
        with pytest.raises(PrivacyError, match="gives epsilon="):
            account.charge(less, quorum, 10, owner, "x")
    account.charge(privacy, quorum, 10, owner, "x")
    with pytest.raises(PrivacyError, match="differs from"):
        account.charge(replace(privacy, clip=2.0), quorum, 10, owner, "x")
    with pytest.raises(PrivacyError, match="the grid of the noise costs"):
        account.charge(privacy, quorum, 1 << 60, owner, "x")


@pytest.mark.parametrize(
    "change",
    [
        {"clip": 0},
        {"noise_multiplier": -1},
        {"sampling": 0},
        {"delta": 0.01},
        {"epsilon": 0},
        {"rounds": 0},
        {"rounds": 1 + 1e-12},
        {"rounds": True},
    ],
)
def test_privacy_is_checked(change: dict[str, float]) -> None:
    fields = {"clip": 1.0, "noise_multiplier": 1.0, "rounds": 1, "epsilon": 1.0, "delta": DELTA}
    with pytest.raises(ParameterError):
        Privacy(**{**fields, **change})


def messages(federation: Federation, kind: str = "train") -> list[Message]:
    arrays = ArrayRecord({name: Array(value) for name, value in ZERO.items()})
    return [Message(RecordDict({"arrays": arrays}), node, kind) for node in federation.contexts]


def test_rounds_are_whole_numbers_on_the_wire() -> None:
    """1 + 1e-12 rounds would be two; and no field may be of another type than its own."""
    text = SumPlan(
        privacy=Privacy.for_rounds(epsilon=1.0, delta=DELTA, rounds=1, clip=1.0)
    ).to_json()
    for old, new in (
        ('"rounds": 1', '"rounds": 1.000000000001'),
        ('"sampling": 1.0', '"sampling": true'),
        ('"weighted_by": "num-examples"', '"weighted_by": 5'),
    ):
        assert old in text
        with pytest.raises(MessageError, match="no plan"):
            SumPlan.of_json(text.replace(old, new))


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_private_run_stays_private(kind: str) -> None:
    """The server goes on without noise, as training or for metrics."""
    privacy = Privacy.for_rounds(epsilon=1.0, delta=DELTA, rounds=5, clip=1.0)
    federation = Federation(4, train=moved(lambda k: [1.0, 0, 0, 0]))
    grid = SecureGrid(federation, SumPlan(privacy=privacy))
    assert grid.send_and_receive(messages(federation))
    with pytest.raises(ProtocolError, match="is in a private run"):
        SecureGrid(federation).send_and_receive(messages(federation, kind))


def test_a_run_without_noise_does_not_become_private() -> None:
    privacy = Privacy.for_rounds(epsilon=1.0, delta=DELTA, rounds=5, clip=1.0)
    federation = Federation(4, train=moved(lambda k: [1.0, 0, 0, 0]))
    assert SecureGrid(federation).send_and_receive(messages(federation))
    with pytest.raises(ProtocolError, match="were without noise and this one is with"):
        SecureGrid(federation, SumPlan(privacy=privacy)).send_and_receive(messages(federation))


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_an_owner_with_a_budget_takes_part_in_no_sum_without_noise(
    kind: str, tmp_path: Path
) -> None:
    config = {"secure-sum-epsilon": 1.0, "secure-sum-delta": DELTA}
    homes = {k: {**config, "secure-sum-home": str(tmp_path / str(k))} for k in range(3)}
    federation = Federation(3, configs=homes)
    with pytest.raises(ProtocolError, match="this client has a budget"):
        SecureGrid(federation).send_and_receive(messages(federation, kind))


def test_a_budget_has_a_delta_of_its_own(tmp_path: Path) -> None:
    """Or a server could take 0.999."""
    context = Federation(1, config={"secure-sum-home": str(tmp_path)}).contexts[FIRST_NODE]
    context.node_config["secure-sum-epsilon"] = 1.0
    with pytest.raises(ParameterError, match="go together"):
        Owner.of(context)


def test_what_is_spent_outlives_the_keys_of_a_month(tmp_path: Path) -> None:
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(3)}
    privacy = Privacy.for_rounds(epsilon=1.0, delta=DELTA, rounds=1, clip=1.0)
    federation = Federation(3, train=moved(lambda k: [1.0] * 4), configs=homes)
    run(federation, privacy, 1)
    kept = Path(homes[0]["secure-sum-home"]) / "run-1.json"
    assert '"pairs"' in kept.read_text()
    for k in range(3):
        os.utime(tmp_path / str(k) / "run-1.json", (time.time() - 31 * 86_400,) * 2)
    with pytest.raises(ProtocolError, match="all rounds=1 of the plan are spent"):
        run(federation, privacy, 1)
    os.utime(kept, (0, 0))
    with alone(Owner.of(federation.contexts[FIRST_NODE])):
        assert set(json.loads(kept.read_text())) == {"noise", "opened", "spent"}


def test_a_memory_of_another_release_is_refused(tmp_path: Path) -> None:
    """Its sums could be opened again, for other clients."""
    context = Federation(3).contexts[FIRST_NODE]
    owner = Owner("x", tmp_path, None, False, 0, None, None)
    Memory().save(context, owner)
    path = tmp_path / f"run-{context.run_id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sums": {"model": "clients"}}))
    with pytest.raises(MessageError, match=r"another release \(it has sums\): start the run anew"):
        Memory.load(context, owner)


def test_the_ledger_counts_the_grid_at_its_own_epsilon(tmp_path: Path) -> None:
    """At the budget's epsilon = 10, not at the plan's 0.5: delta grows with it."""
    privacy = Privacy.for_rounds(epsilon=0.5, delta=DELTA, rounds=1, clip=1.0)
    owner = Owner("x", tmp_path, None, False, 0, 10.0, DELTA)
    quorum = Quorum(clients=100, lost=33)
    account = Account({})
    account.charge(privacy, quorum, 10**6, owner, "x")
    entry = json.loads((tmp_path / LEDGER).read_text().splitlines()[0])
    added = next(v for v in _numbers(entry, "additive_delta"))
    assert added > 100 * account.spent["beside"] > 0


def _numbers(entry: Any, name: str) -> list[float]:
    """All values of a key, at any depth."""
    if isinstance(entry, dict):
        own = [entry[name]] if name in entry else []
        return own + [x for value in entry.values() for x in _numbers(value, name)]
    return []


def test_a_norm_beyond_floats_is_no_refusal() -> None:
    """Two blocks whose squares are finite each and not together."""
    privacy = Privacy(clip=1.0, noise_multiplier=1e-9, rounds=1, epsilon=1.0, delta=DELTA)
    x = np.zeros(BLOCK + 1)
    x[0] = x[-1] = 1.3e154
    quorum, bases = Quorum(clients=10, lost=3), Bases(RecordDict())
    words = noisy_words(privacy, quorum, reply_of(x), bases, SeededRandomness(0))
    assert np.abs(words).max() <= 40 * privacy.share_units(quorum)


# -- the attack ------------------------------------------------------------------------------------


def attack(noise_factor: float, runs: int = 1500) -> float:
    """A lower bound on mu from what the coordinator and three of ten clients see of a round.

    The victim has C or -C on one axis, in words as its own code makes them; the four honest
    clients' words that must be in the sum are added, the colluders' noise is subtracted. The
    statistic is the first value; most powerful, because the rest is independent of the victim.
    Clopper and Pearson at 99.9 %, at the threshold 0.
    """
    privacy = Privacy(clip=1.0, noise_multiplier=2.0, rounds=1, epsilon=1.0, delta=DELTA)
    quorum = Quorum(clients=10, lost=3)
    honest = quorum.needed - quorum.colluders
    hits = []
    for sign in (1.0, -1.0):
        bases, reply = Bases(RecordDict()), reply_of(np.zeros(runs))
        total = np.full(runs, sign * privacy.clip)
        for k in range(honest):
            source = SeededRandomness(int(sign) + 7 * k)
            words = noisy_words(privacy, quorum, reply, bases, source)
            total += noise_factor * words / privacy.units(quorum)
        hits.append(int((total > 0).sum() if sign > 0 else (total <= 0).sum()))
    rates = [stats.beta.ppf(0.001, h, runs - h + 1) for h in hits]
    # Mu-Gaussian-DP allows alpha, beta with Phi^-1(1 - alpha) - Phi^-1(beta) <= mu.
    return float(sum(stats.norm.ppf(rate) for rate in rates))


def test_an_attack_stays_below_the_claim_and_comes_close() -> None:
    """mu = 2 C / (z C) = 1. With the noise halved the attack exceeds it."""
    assert 0.75 < attack(1.0) <= 1.0
    assert attack(0.5) > 1.0
