"""Privacy of Gram sums: sensitivity, noise, certificate."""

from __future__ import annotations

import numpy as np
import pytest

from parties.kernel.gram.sums import with_noise
from protocols.errors import PrivacyError
from protocols.privacy.certificates.gram import (
    GramRelease,
    check,
    gram_sensitivity,
    noise_norm_bound,
)
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.accounting import library_epsilon
from protocols.privacy.loss.budget import Budget

Floats = np.ndarray


def released(x: Floats, y: Floats) -> Floats:
    """(X^T X, X^T Y) of single rows in the norm of the sensitivity, shape (rows, coordinates)."""
    gram = np.einsum("ij,ik->ijk", x, x).reshape(len(x), -1)  # Frobenius: all d^2 entries
    return np.hstack([gram, np.einsum("ij,ik->ijk", x, y).reshape(len(x), -1)])


@pytest.mark.parametrize(("norm", "target"), [(1.0, 1.0), (1.0, 1.4), (1.0, 3.0), (2.0, 0.3)])
def test_sensitivity_pairs(norm: float, target: float) -> None:
    """120,000 pairs, half of them on the boundary: none above D; the worst pair reaches it."""
    rng = np.random.default_rng(9)
    bound, largest = gram_sensitivity(norm, target), 0.0
    for features, outputs in ((1, 1), (2, 1), (3, 2)):
        x, y = rng.normal(size=(2, 40_000, features)), rng.normal(size=(2, 40_000, outputs))
        inside = np.where(
            rng.uniform(size=(2, 2, 40_000, 1)) < 0.5, 1.0, rng.uniform(size=(2, 2, 40_000, 1))
        )
        x *= inside[0] * norm / np.linalg.norm(x, axis=2, keepdims=True)
        y *= inside[1] * target / np.linalg.norm(y, axis=2, keepdims=True)
        apart = np.linalg.norm(released(x[0], y[0]) - released(x[1], y[1]), axis=1)
        largest = max(largest, apart.max())
    assert largest <= bound * (1 + 1e-12)
    assert largest > 0.97 * bound  # a bound 3 % too small is caught
    cosine = max(-1.0, -(target**2) / 2 / norm**2)
    pair = norm * np.array([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]])
    worst = released(pair, np.full((2, 1), target))
    assert np.linalg.norm(worst[0] - worst[1]) == pytest.approx(bound)


def test_noise_is_symmetric_and_of_the_stated_size() -> None:
    """Diagonal sigma, off it sigma / sqrt(2), cross sums sigma; on the grid before the weights."""
    rng = np.random.default_rng(11)
    zero, draws = (np.zeros((1, 3)), np.zeros((1, 2)), (1.0, 1.0)), 5_000
    noisy = [with_noise(*zero, rng.normal(size=12), 1, 30) for _ in range(draws)]
    gram, cross = np.array([s.gram for s in noisy]), np.array([s.cross for s in noisy])
    np.testing.assert_array_equal(gram, gram.transpose(0, 2, 1))
    expected = np.where(np.eye(3) > 0, 1.0, 0.5**0.5)
    # Of a standard deviation from 5,000 draws, 1 %; of three entries' together 0.6 %: 5 % off is
    # rejected at 8 deviations.
    np.testing.assert_allclose(gram.std(axis=0), expected, rtol=0.05)
    np.testing.assert_allclose(cross.std(axis=0), 1.0, rtol=0.05)
    above = (gram / expected)[:, [0, 0, 1], [1, 2, 2]]
    for alike in (np.diagonal(gram, axis1=1, axis2=2), above, cross):
        assert alike.std() == pytest.approx(1.0, rel=0.025)
    rows, targets = np.full((1, 1), 0.3), np.full((1, 1), 0.7)
    on_grid = with_noise(rows, targets, (1.0, 1.0), np.zeros(2), 1, 2)
    assert (on_grid.gram[0, 0], on_grid.cross[0, 0]) == (0.0, 0.25)


def setting(**changes: object) -> GramRelease:
    split_of = NoiseSplit(parties=3, colluders=1)
    budget = Budget(epsilon=1.0, delta=1e-5, split=split_of, mechanism_share=0.9, other_delta=1e-8)
    fields = {
        "budget": budget, "norm_bound": 1.0, "target_bound": 2**0.5, "rows": 768, "features": 9,
        "outputs": 2, "ridge": 1.0,
    }  # fmt: skip
    return GramRelease(**(fields | changes))  # type: ignore[arg-type]


def test_certificate() -> None:
    """sigma gives epsilon by an independent accountant; too little noise or ridge is refused."""
    certificate = check(setting()).require()
    budget = certificate.setting.budget
    library = library_epsilon(certificate.events, delta=budget.delta_mechanism)
    assert library == pytest.approx(1.0, rel=0.01)
    assert certificate.epsilon_by_coalition[1] == pytest.approx(1.0, rel=1e-6)
    assert (
        certificate.sensitivity == pytest.approx(2**1.5, rel=1e-6)
        and certificate.sensitivity > 2**1.5
    )
    spent = next(c for c in certificate.conditions if c.name == "delta")
    assert spent.left == pytest.approx((0.9 + 0.1 * 0.999) * (1e-5 - 1e-8) + 1e-8, rel=1e-9)
    assert spent.left <= spent.right == 1e-5
    with pytest.raises(PrivacyError, match="condition ridge"):
        check(setting(ridge=0.9 * certificate.setting.noise_bound)).require()
    with pytest.raises(PrivacyError, match="condition noise"):
        check(setting(sigma=0.99 * certificate.setting.sigma)).require()


def test_noise_norm_bound() -> None:
    """Fails in at most 1 % of 20,000 draws at beta = 1 %, and is not twice too large."""
    rng = np.random.default_rng(12)
    for features in (1, 4, 16):
        square = rng.normal(size=(20_000, features, features))
        norms = np.abs(np.linalg.eigvalsh((square + square.transpose(0, 2, 1)) / 2)).max(axis=1)
        bound = noise_norm_bound(1.0, features, 0.01)
        assert np.mean(norms > bound) <= 0.01
        assert np.quantile(norms, 0.99) > bound / 2
