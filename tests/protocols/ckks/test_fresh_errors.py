"""Fresh errors: the law of OpenFHE's, one polynomial at every prime, each on its own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from protocols.aggregate.gaussian import narrow_gaussian
from protocols.ckks.context import CkksContext
from protocols.ckks.flooding import FRESH_ERROR_STD
from protocols.ckks.fresh_errors import fresh_errors
from protocols.ckks.parameters import CkksParameters
from protocols.privacy.randomness import SeededRandomness
from tests import exact

N, P_VALUE = 512, 1e-6
CONTEXT = CkksContext(CkksParameters(ring_dim=N, depth=4, security_bits=0), "errors")


def drawn(count: int) -> NDArray[np.float64]:
    """Coefficients, shape (count, N)."""
    rows = [error[0] for error in fresh_errors(CONTEXT, count)]
    return np.array([exact.coefficients(row, CONTEXT.primes[0]) for row in rows], float)


def chi2(values: NDArray[np.float64]) -> float:
    """p of the discrete Gaussian of the stated std, tails beyond 10 in one cell each."""
    cells = np.arange(-10, 11)
    weights = np.exp(-(np.arange(-60, 61) ** 2) / (2 * FRESH_ERROR_STD**2))
    law = np.bincount(np.clip(np.arange(-60, 61), -10, 10) + 10, weights) / weights.sum()
    counts = np.bincount(np.clip(values, -10, 10).astype(int).ravel() + 10, minlength=cells.size)
    return float(stats.chisquare(counts, law * values.size).pvalue)


def test_their_law_is_the_stated_one() -> None:
    """Chi^2, p = 1e-6; a std that is 5 % off fails, so the test has power."""
    assert chi2(drawn(100)) > P_VALUE
    for factor in (0.95, 1.05):
        wrong = narrow_gaussian(factor * FRESH_ERROR_STD, 100 * N, SeededRandomness(1))
        assert chi2(wrong.astype(float)) < P_VALUE


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_each_is_one_small_polynomial_at_every_prime(count: int) -> None:
    errors = fresh_errors(CONTEXT, count)
    assert len(errors) == count + count % 2
    for error in errors:
        assert error.shape == (CONTEXT.params.num_towers, N)
        rows = [
            exact.coefficients(row, prime).tolist()
            for row, prime in zip(error, CONTEXT.primes, strict=True)
        ]
        assert all(row == rows[0] for row in rows)
        assert 0 < max(map(abs, rows[0])) < 40


def test_they_are_independent() -> None:
    """Within a call and across calls, at every shift: correlations as of independent ones."""
    errors = drawn(8) / FRESH_ERROR_STD
    spectra = np.fft.fft(errors, axis=1)
    for i in range(8):
        for j in range(i):
            # Cyclic correlations at all N shifts, of variance N: the largest is below 6 sqrt(N).
            shifts = np.fft.ifft(spectra[i] * spectra[j].conj()).real
            assert np.abs(shifts).max() < 6 * np.sqrt(N)
