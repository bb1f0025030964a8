"""How exact sums are for arrays of every type, and what the log tells those who run them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import Privacy, SecureSum
from ciphercohort.flower.records import Bases, Reply, differences
from ciphercohort.flower.server import warn_of_noise
from protocols.aggregate.quorum import Quorum
from tests.flower.federation import Federation, start
from tests.flower.sums.test_secure_sum_privacy import DELTA, moved
from tests.flower.sums.test_secure_sum_privacy import run as private
from tests.flower.sums.test_secure_sums import run


@pytest.mark.parametrize("kind", ["<f2", "<f8", "|u1"])
def test_changes_are_as_exact_as_their_own_type(kind: str) -> None:
    """Whole numbers of units in, and out again; float32 rounds to 24 bits of the change itself."""
    before, after = np.array([1, 2, 0, 7], kind), np.array([3, 1, 0.25, 7], kind)
    request = RecordDict({"arrays": ArrayRecord({"x": Array(before)})})
    metrics = MetricRecord({"num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord({"x": Array(after)}), "metrics": metrics})
    bases = Bases(request)
    reply = Reply.of(content, bases, "num-examples")
    [(start_at, found)] = differences(reply, bases, np.float32)
    assert start_at == 0 and (found == after.astype(float) - before.astype(float)).all()
    assert found.dtype == (np.float64 if kind in ("<f8", "<i8") else np.float32)
    [(_, exact)] = differences(reply, bases)
    assert exact.dtype == np.float64 and (exact == found).all()


def test_a_range_beyond_float32_is_scaled_in_float64() -> None:
    """Units of 2^-100: a factor that no float32 holds."""
    tiny = 2.0**-110

    def little(message: Message, context: Context) -> RecordDict:
        x = Array(np.full(3, tiny, np.float32))
        metrics = MetricRecord({"num-examples": 1})
        return RecordDict({"arrays": ArrayRecord({"x": x}), "metrics": metrics})

    federation = Federation(3, train=little)
    strategy = SecureSum(FedAvg(fraction_evaluate=0.0), range=2.0**-105, examples=1)
    found = strategy.start(federation, start({"x": np.zeros(3, np.float32)}), num_rounds=1)
    assert np.abs(found.arrays["x"].numpy() / tiny - 1).max() < 1e-5


def test_the_log_says_whose_identities_were_taken_on_trust(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(4)}
    with caplog.at_level("INFO", logger="flwr"):
        run(Federation(4, configs=homes), SecureSum(FedAvg(fraction_evaluate=0.0)))
        assert caplog.text.count("4 seen for the first time and trusted: ") == 4
        identities = json.loads((tmp_path / "0" / "known.json").read_text())
        name, identity = next(iter(identities.items()))
        assert f"{name} ({identity[:8]}…)" in caplog.text
        caplog.clear()
        run(Federation(4, configs=homes), SecureSum(FedAvg(fraction_evaluate=0.0)))
        assert "seen for the first time" not in caplog.text and "all known; no pins" in caplog.text
        caplog.clear()
        pins = tmp_path / "pins"
        pins.write_text("\n".join(identities.values()))
        pinned = {k: {**home, "secure-sum-pins": str(pins)} for k, home in homes.items()}
        run(Federation(4, configs=pinned), SecureSum(FedAvg(fraction_evaluate=0.0)))
        assert caplog.text.count("all identities are pinned") == 4


def test_a_simulation_logs_its_keys_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """All clients of a process together; without a home folder no identity lasts."""
    with caplog.at_level("INFO", logger="flwr"):
        run(Federation(10), SecureSum(FedAvg(fraction_evaluate=0.0)))
    assert caplog.text.count("keys of 10 clients, ") == caplog.text.count("normal in a sim") == 1


@pytest.mark.parametrize(("clients", "warned"), [(10, True), (40, False)])
def test_a_run_that_is_mostly_noise_is_told_before_its_first_round(
    clients: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """And each round has the size of its noise in one line, from public figures alone."""
    privacy = Privacy.for_rounds(epsilon=4.0, delta=DELTA, rounds=3, clip=1.0)
    federation = Federation(clients, train=moved(lambda k: [0.1, 0, 0, 0]))
    order: list[str] = []
    federation.tamper = lambda step, message: (
        order.append("sent") if "times as long" not in (caplog.text) else order.append("told")
    )
    with caplog.at_level("INFO", logger="flwr"):
        private(federation, privacy, 2, fraction_evaluate=0.0)
    quorum = Quorum.of(clients, 1 / 3)
    std = privacy.share_std(quorum) / math.sqrt(clients)
    assert (2 * std > 1) == warned
    assert caplog.text.count("so that a model learns little") == warned
    assert set(order) == ({"told"} if warned else {"sent"})
    lines = (
        f"mean of {clients} clients; std of its noise: {std:.2g} a value, {2 * std:.2g} over all 4"
    )
    assert caplog.text.count(lines) == 2


@pytest.mark.parametrize("lost", [0.0, 1 / 3])
def test_the_number_of_clients_that_the_warning_names_is_enough(
    lost: float, caplog: pytest.LogCaptureFixture
) -> None:
    """And no figure is named where no number would do."""
    privacy = Privacy.for_rounds(epsilon=4.0, delta=DELTA, rounds=1, clip=1.0)
    asked = [Message(RecordDict({"arrays": start({"x": np.zeros(50)})}), 1, "train")] * 1024
    warn_of_noise(privacy, asked[:20], lost)
    enough = int(re.findall(r"take (\d+) clients", caplog.text)[0])
    caplog.clear()
    warn_of_noise(privacy, asked[:enough], lost)
    assert caplog.text == "" and 20 < enough <= 1024
    many = Message(RecordDict({"arrays": start({"x": np.zeros(10**7)})}), 1, "train")
    warn_of_noise(privacy, [many] * 20, lost)
    assert "1024 clients are too few" in caplog.text
