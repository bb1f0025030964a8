"""The Gram protocol on toy rings (INSECURE): encrypted = twin, sums, cost, messages."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from parties.kernel.gram.sums import GramSums
from protocols.ckks import CkksParameters
from protocols.ckks.circuits.gram import GramLayout
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.messages import Body
from protocols.gram.contributions import collect, pack, row_sum_bound
from protocols.gram.training import _count, refresh_schedule
from sims.gram_twin import run_gram_twin
from tests.protocols.gram_session import (
    check_against_twin,
    make_rows,
    make_task,
    run_encrypted,
    split,
)
from tests.support.helpers import drive, relative_error
from tests.support.joint import keys_of, uncommitted

Floats = np.ndarray


# -- encrypted = twin -----------------------------------------------------------------------------

GRID = [
    # features, outputs, parties, rounds, row_sums, levels, ring
    (1, 1, 2, 1, True, 3, 512),
    (3, 2, 3, 3, True, 4, 512),
    (5, 3, 2, 10, True, 6, 1024),
    (16, 2, 2, 30, True, 6, 1024),
    (5, 2, 2, 90, True, 6, 1024),
    (8, 4, 3, 5, False, 3, 512),
    (17, 2, 2, 7, False, 5, 4096),
]


@pytest.mark.parametrize(
    ("case", "accelerated"), [(case, k % 2 == 0) for k, case in enumerate(GRID)], ids=str
)
def test_encrypted_equals_plain(
    case: tuple[int, int, int, int, bool, int, int], accelerated: bool
) -> None:
    """Weights agree to 1e-9, far below 1e-4, and nothing else is released."""
    features, outputs, parties, rounds, row_sums, levels, ring = case
    task = make_task(
        features,
        outputs,
        parties,
        rounds,
        ring_dim=ring,
        levels=levels,
        row_sums=row_sums,
        accelerated=accelerated,
    )
    check_against_twin(task, least=0.01)


def test_zero_column_negative_entries_and_ridge() -> None:
    """A column of zeros keeps weight 0 and leaves the others as they are without it."""
    task = make_task(features=4, outputs=2, rounds=12, ridge=0.05)
    x, y = make_rows(task, seed=2)
    x[:, 1] = 0.0
    run = run_encrypted(task, split(task, x, y))
    assert np.abs(run.weights[1]).max() < 1e-9
    smaller = replace(task, num_features=3)
    without = run_gram_twin(smaller, GramSums.of(np.delete(x, 1, axis=1), y))
    assert relative_error(np.delete(run.weights, 1, axis=0), without) < 1e-9


# -- sums -----------------------------------------------------------------------------------------


def test_sums_do_not_depend_on_order_or_partition() -> None:
    task = make_task(features=5, outputs=3, rows=60)
    x, y = make_rows(task, seed=3)
    whole, rng = GramSums.of(x, y), np.random.default_rng(4)
    for parties in (1, 2, 7, 60):
        order = rng.permutation(60)
        pieces = np.array_split(order, parties)
        total = reduce(operator.add, [GramSums.of(x[k], y[k]) for k in pieces])
        for name in ("gram", "cross", "row_sums"):
            np.testing.assert_allclose(getattr(total, name), getattr(whole, name), rtol=1e-12)


def test_row_sums_bound_the_curvature_and_are_the_papers() -> None:
    """b_k = 2 sum_j sum_i |x_ij x_ik| term by term; diag(b) - 2 X^T X is positive semidefinite."""
    x = np.random.default_rng(5).normal(size=(20, 4))
    b = GramSums.of(x, x[:, :1]).row_sums
    loop = [2 * sum(abs(r[j] * r[k]) for r in x for j in range(4)) for k in range(4)]
    np.testing.assert_allclose(b, loop, rtol=1e-12)
    assert np.linalg.eigvalsh(np.diag(b) - 2 * x.T @ x).min() > 0


def test_row_sum_bound_holds_and_is_attained() -> None:
    rng = np.random.default_rng(6)
    for norm, entry in ((1.0, 1.0), (3.0, 1.0), (0.5, 2.0)):
        for features in (1, 2, 9, 64):
            x = rng.normal(size=(2000, features)) * rng.uniform(size=(2000, features)) ** 4
            x *= norm / np.linalg.norm(x, axis=1, keepdims=True)
            x = np.clip(x, -entry, entry)
            worst = 2 * (np.abs(x).max(axis=1) * np.abs(x).sum(axis=1)).max()
            assert worst <= row_sum_bound(norm, features, entry) * (1 + 1e-12)
    # x_k = cos t, the others equal: the top eigenvector of the form.
    d, t = 16, np.linspace(0, np.pi / 2, 100_001)
    attained = 2 * np.max(np.cos(t) * (np.cos(t) + np.sqrt(d - 1) * np.sin(t)))
    assert attained == pytest.approx(row_sum_bound(1.0, d, 1.0), rel=1e-8)
    box = np.ones(d)
    assert 2 * box.sum() == pytest.approx(row_sum_bound(np.sqrt(d), d, 1.0))


# -- cost -----------------------------------------------------------------------------------------


def test_cost_does_not_depend_on_rows() -> None:
    """The same operations, refreshes and ciphertexts for 768 rows and for a hundred times that."""
    few, many = (make_task(features=9, rounds=12, rows=rows) for rows in (768, 76_800))
    assert _count(few) == _count(many)
    x, y = make_rows(few, seed=7)
    assert len(pack(few, GramSums.of(x, y))) == few.num_ciphertexts


# -- layout ---------------------------------------------------------------------------------------


def test_layout_names_its_bound() -> None:
    with pytest.raises(ParameterError, match=r"128\^2 \* 2 = 32768 slots, a ciphertext has 16384"):
        GramLayout(num_slots=16384, num_features=128, outputs=2)
    layout = GramLayout(num_slots=16384, num_features=128, outputs=1)
    assert len(layout.rotations) == 15


def test_slots_stand_where_the_formula_says() -> None:
    layout = GramLayout(num_slots=128, num_features=3, outputs=2)
    matrix, values = np.arange(9.0).reshape(3, 3), np.arange(6.0).reshape(3, 2) + 1
    slots = {"m": layout.matrix(matrix), "i": layout.inner(values), "o": layout.outer(values)}
    for k, j, o in np.ndindex(3, 3, 2):
        at = (k * 4 + j) * 2 + o + 32 * 3  # in the last of four copies
        assert slots["m"][at] == matrix[k, j]
        assert (slots["i"][at], slots["o"][at]) == (values[j, o], values[k, o])
    np.testing.assert_array_equal(layout.read_heads(slots["i"]), values)
    assert layout.released().sum() == 6


# -- messages -------------------------------------------------------------------------------------


def test_a_party_with_too_few_ciphertexts_is_named() -> None:
    task = make_task()
    keys = keys_of(2, task.ckks, task.layout.rotations)
    x, y = make_rows(task, seed=8)
    evaluator_of_keys = type("E", (), {"context": keys.context})()
    with pytest.raises(ProtocolError, match="sent 0 blobs, 5 are due") as caught:
        drive(collect(evaluator_of_keys, task, uncommitted(task.names)), lambda *_: Body())
    assert caught.value.culprit == "hospital-1"
    with pytest.raises(ParameterError, match="sums have shapes"):
        pack(task, GramSums.of(x[:, :2], y))


def test_impossible_tasks_are_refused() -> None:
    task = make_task()
    for change in ({"rounds": 0}, {"ridge": -1.0}, {"floor": 0.0}, {"curvature_bound": 0.0}):
        with pytest.raises(ParameterError):
            replace(task, **change)


def test_too_few_levels_are_refused() -> None:
    task = make_task()
    shallow = CkksParameters(ring_dim=1024, depth=4, security_bits=0)
    with pytest.raises(ParameterError, match="depth=4 levels is below the 5"):
        refresh_schedule(replace(task, ckks=shallow))
