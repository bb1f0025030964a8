"""Torch modules trained on encrypted sums: the twin, pooled rows, budgets, checkpoints."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus.accountants import PRVAccountant  # noqa: E402

from ciphercohort.estimators.torch_training import FederatedModule  # noqa: E402
from parties.verifier.torch_step import TorchContributor, TorchModel, to_vector  # noqa: E402
from protocols.errors import ParameterError, ProtocolError  # noqa: E402
from protocols.updates.momentum import GradientDescent, HeavyBall  # noqa: E402
from protocols.words import EXACT_SUMS  # noqa: E402
from tests.support import torch_cases as cases  # noqa: E402

SHARDS = {"north": cases.data(14, seed=1), "south": cases.data(25, seed=2)}


def federated(rounds=4, **options) -> FederatedModule:
    given = {
        "update": GradientDescent(rounds=rounds, learning_rate=0.5),
        "clip": 1.0,
        "epsilon": 3.0,
        "seed": 11,
    }
    return FederatedModule(cases.make_mlp, cases.row_loss, **{**given, **options})


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_encrypted_is_plain(momentum) -> None:
    options = {}
    if momentum is not None:
        options["update"] = HeavyBall(rounds=4, learning_rate=0.2, momentum=momentum, ridge=0.0)
    model = federated(**options).fit(SHARDS)
    twin = model.twin(SHARDS)
    quiet = federated(epsilon=None, **options).twin(SHARDS)
    assert np.abs(model.weights_ - twin).max() < 1e-6
    assert np.abs(twin - quiet).max() > 1e-2  # the noise is there
    whole = cases.pooled(SHARDS)
    assert model.score(whole.inputs, whole.labels) == model.score(whole.inputs, whole.labels, twin)


def test_parties_are_the_pooled_rows_without_noise() -> None:
    model = federated(epsilon=None).fit(SHARDS)
    assert model.epsilon_ == math.inf
    own = TorchModel(module=cases.make_mlp, loss=cases.row_loss)
    pooled = TorchContributor(model.plan_, "north", cases.pooled(SHARDS), own)
    weights = to_vector(own.build())
    for _ in range(4):
        weights = weights - 0.5 * pooled.contribution("gradient", 0, weights)
    assert np.abs(model.weights_ - weights).max() < 1e-6
    assert np.abs(weights - to_vector(own.build())).max() > 0.05


def test_fits_do_not_share_noise() -> None:
    model = federated(rounds=1, seed=None)
    first = model.fit(SHARDS).weights_
    assert np.abs(first - model.twin(SHARDS)).max() < 1e-6
    assert np.abs(model.fit(SHARDS).weights_ - first).max() > 1e-2


@pytest.mark.slow
def test_each_party_in_a_process_of_its_own() -> None:
    model = federated(rounds=2, processes=True).fit(SHARDS)
    assert np.abs(model.weights_ - model.twin(SHARDS)).max() < 1e-6


# From the bounds that Opacus takes for the range of its grid.
@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (4.0, 1e-4)])
def test_epsilon_is_that_of_opacus(epsilon, delta) -> None:
    model = federated(epsilon=epsilon, delta=delta).fit(SHARDS)
    assert 0.99 * epsilon < model.epsilon_ <= epsilon
    # Opacus adds or removes a row, which moves the sum by the clip; replacing one, by two.
    multiplier = model.plan_.privacy.sigma * 39 / 2.0
    accountant = PRVAccountant()
    accountant.history = [(multiplier, 1.0, 4)]
    with np.errstate(divide="ignore"):  # log(1 - q) at q = 1
        theirs = accountant.get_epsilon(delta, eps_error=epsilon / 1000)
    assert abs(theirs / model.epsilon_ - 1) < 0.02


def test_stages_cost_what_one_session_does(tmp_path) -> None:
    whole = federated(rounds=6).fit(SHARDS)
    staged = federated(rounds=6, checkpoint_every=4, folder=tmp_path).fit(SHARDS)
    assert staged.epsilon_ == pytest.approx(whole.epsilon_, rel=1e-9)
    assert len(staged.costs_) == 2
    assert staged.plan_.privacy.epsilon < 0.7 * whole.epsilon_  # two of six rounds
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == [
        "round-00004.npz",
        "round-00006.npz",
    ]


def test_going_on_from_a_checkpoint_gives_the_same_model(tmp_path) -> None:
    whole = federated(rounds=6, checkpoint_every=2).fit(SHARDS)
    seen = []

    class StoppedError(Exception):
        pass

    def stop(t, weights) -> None:
        seen.append(t)
        if t == 3:
            raise StoppedError

    options = {"rounds": 6, "checkpoint_every": 2, "folder": tmp_path}
    with pytest.raises(StoppedError):
        federated(**options, on_round=stop).fit(SHARDS)
    assert seen == [1, 2, 3]
    checkpoint = tmp_path / "round-00002.npz"
    # The stage that was cut short stays spent, so the promise has no room for the last one.
    with pytest.raises(ProtocolError, match="budget"):
        federated(**options).fit(SHARDS, resume=checkpoint)
    resumed = federated(**options, budget=5.0).fit(SHARDS, resume=checkpoint)
    assert 3.0 < resumed.epsilon_ <= 5.0
    assert np.abs(resumed.weights_ - whole.weights_).max() < 1e-6
    assert np.abs(resumed.weights_ - federated(**options).twin(SHARDS)).max() < 1e-6
    twins = [federated(**options).twin(SHARDS) for _ in range(2)]
    assert (twins[0] == twins[1]).all()


def test_a_checkpoint_of_another_training_is_refused(tmp_path) -> None:
    options = {"rounds": 2, "checkpoint_every": 1, "folder": tmp_path, "epsilon": None}
    federated(**options).fit(SHARDS)
    with pytest.raises(ParameterError, match="another training"):
        federated(**options, clip=0.5).fit(SHARDS, resume=tmp_path / "round-00001.npz")


def test_only_gradient_descent_has_checkpoints() -> None:
    rule = HeavyBall(rounds=4, learning_rate=0.2, momentum=0.5, ridge=0.0)
    with pytest.raises(ParameterError, match="no checkpoint holds"):
        federated(update=rule, checkpoint_every=2).fit(SHARDS)
    with pytest.raises(ParameterError, match="checkpoint_every=5"):
        federated(checkpoint_every=5).fit(SHARDS)


def test_exact_sums_are_said_to_be_exact(caplog: pytest.LogCaptureFixture) -> None:
    for epsilon in (None, 3.0):
        caplog.clear()
        federated(rounds=1, epsilon=epsilon).fit(SHARDS)
        assert (EXACT_SUMS in caplog.text) == (epsilon is None)
