"""Secrets and errors: their laws, one polynomial at every prime, each on its own, nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from parties.kernel.keys.key_share import KeyShare
from parties.kernel.rows.session import encrypt
from protocols.ckks import CkksParameters, flooding
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.flooding import FRESH_ERROR_STD, encode_complex
from protocols.ckks.sampling import fresh_errors, gaussian, in_q, ternary
from protocols.ckks.transform import SHORT, evaluations, from_slots, to_slots
from protocols.privacy.laws.discrete import narrow_gaussian
from protocols.privacy.laws.seeded import SeededRandomness
from tests.support import exact

N, P_VALUE = 512, 1e-6
CONTEXT = CkksContext(CkksParameters(ring_dim=N, depth=4, security_bits=0), "errors")


def drawn(count: int) -> NDArray[np.float64]:
    """Coefficients, shape (count, N)."""
    rows = [error[0] for error in fresh_errors(CONTEXT, count)]
    return np.array([exact.coefficients(row, CONTEXT.primes[0]) for row in rows], float)


def chi2(values: NDArray[np.float64], std: float = FRESH_ERROR_STD) -> float:
    """p of the discrete Gaussian of the stated std, tails in one cell each.

    In every cell 50 or more are due: where less than one is, three by chance have p < 1e-6.
    """
    k = np.arange(-60, 61)
    law = np.exp(-(k**2) / (2 * std**2))
    law /= law.sum()
    end = max(j for j in range(1, 11) if law[k >= j].sum() * values.size > 50)
    due = np.bincount(np.clip(k, -end, end) + end, law * values.size)
    counts = np.bincount(np.clip(values, -end, end).astype(int).ravel() + end, minlength=due.size)
    return float(stats.chisquare(counts, due).pvalue)


def test_their_law_is_the_stated_one() -> None:
    """Chi^2, p = 1e-6; a std that is 5 % off fails, so the test has power."""
    assert chi2(drawn(100)) > P_VALUE
    for factor in (0.95, 1.05):
        wrong = narrow_gaussian(factor * FRESH_ERROR_STD, 100 * N, SeededRandomness(1))
        assert chi2(wrong.astype(float)) < P_VALUE


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_each_is_one_small_polynomial_at_every_prime(count: int) -> None:
    errors = fresh_errors(CONTEXT, count)
    assert len(errors) == count
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
            # Cyclic correlations at all N shifts, of variance N: 14,336 in all, none of which is
            # beyond 7 sqrt(N) with p = 4e-8. Of one error twice it is N = 22 sqrt(N).
            shifts = np.fft.ifft(spectra[i] * spectra[j].conj()).real
            assert np.abs(shifts).max() < 7 * np.sqrt(N)


@pytest.mark.parametrize("std", [1.0, FRESH_ERROR_STD, FRESH_ERROR_STD * 3**0.5])
def test_errors_of_every_size(std: float) -> None:
    """Chi^2 against the discrete Gaussian; 5 % more or less fails."""
    assert chi2(gaussian(200 * N, std), std) > P_VALUE
    for factor in (0.95, 1.05):
        wrong = narrow_gaussian(factor * std, 200 * N, SeededRandomness(1))
        assert chi2(wrong, std) < P_VALUE


@pytest.mark.parametrize("n", [2 * SHORT, SHORT, 64])
def test_evaluations_are_those_of_pythons_integers(n: int) -> None:
    """Of short rows together, of longer ones row by row."""
    primes = [(k << 14) + 1 for k in (8589934600, 8589934627)]
    coefficients = np.random.default_rng(n).integers(-(2**40), 2**40, n)
    for row, prime in zip(evaluations(coefficients, primes), primes, strict=True):
        assert row.tolist() == list(exact.evaluations(coefficients, prime))


def test_secrets_are_uniform_on_three_values() -> None:
    """Chi^2, alone and in pairs of neighbours; no two alike."""
    drawn = ternary(300 * N)
    assert set(drawn.tolist()) == {-1, 0, 1}
    assert stats.chisquare(np.bincount(drawn + 1)).pvalue > P_VALUE
    pairs = 3 * (drawn[::2] + 1) + drawn[1::2] + 1
    assert stats.chisquare(np.bincount(pairs, minlength=9)).pvalue > P_VALUE
    assert (ternary(N) != ternary(N)).any()


@pytest.mark.parametrize("towers", [1, 2, 3, 5])
def test_both_transforms_agree(towers: int) -> None:
    """OpenFHE's encoder and our own, bit for bit, up to the largest coefficients."""
    for drawn in (ternary(N), gaussian(N, 6.9), np.full(N, -127), np.arange(N) % 255 - 127):
        wanted = evaluations(drawn, CONTEXT.primes[:towers])
        assert (in_q(CONTEXT, drawn, towers) == wanted).all()


@pytest.mark.parametrize("largest", [0.0, 1.0, 16.0, 2.0**12, 2.0**20])
def test_errors_are_there_whatever_is_encrypted(largest: float) -> None:
    """Under the public key (0, 0): e0 + m and e1. Slots of 2^12 have 62 bits, a double 53.

    Of two encryptions of one message the difference is that of two errors: chi^2; half of the
    coefficients without one would fail.
    """
    zero = np.zeros((CONTEXT.params.num_towers, N), np.uint64)
    slots = largest * np.linspace(-1, 1, N // 2)
    found = []
    for _ in range(60):
        share = KeyShare(CONTEXT, bytes(32), 2)
        both = (np.split(encrypt(share, (zero, zero), slots, name), 2) for name in "ab")
        (first, e1), (second, _) = both
        prime = CONTEXT.primes[0]
        moved = exact.coefficients(rns.subtract(first, second, CONTEXT.primes)[0], prime)
        found.append(np.array(moved, float))
        assert 0 < np.abs(np.array(exact.coefficients(e1[0], prime), float)).max() < 40
    std = FRESH_ERROR_STD * 2**0.5
    differences = np.array(found)
    assert chi2(differences, std) > P_VALUE
    kept = np.where(np.arange(N) % 2, differences, 0)
    assert chi2(kept, std) < P_VALUE


# -- whatever is encoded --------------------------------------------------------------------------

LIMIT = 2.0 ** (-1 - CONTEXT.params.scale_bits)
SIZES = [0.0, 1e-308, 1e-30, *(LIMIT * 2.0**k for k in range(-3, 12)), 1e-9, 1.0, 1e12, 1e290]


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("where", ["first", "one", "all", "signs", "imaginary"])
@pytest.mark.parametrize("size", SIZES)
def test_numbers_of_every_size_are_encoded(size: float, where: str, level: int) -> None:
    """To the nearest polynomial, none refused: which one is would tell of a row."""
    slots = np.zeros(N // 2, np.complex128)
    if where in ("first", "one"):
        slots[0 if where == "first" else 77] = size
    else:
        slots[:] = size * (1j if where == "imaginary" else 1)
    if where == "signs":
        slots[1::2] *= -1
    towers = CONTEXT.params.num_towers - level
    found = CONTEXT.residues_of(encode_complex(CONTEXT, slots, towers))
    if size > 1.0:  # beyond the primes
        assert found.any()
        return
    due = from_slots(slots * 2.0**CONTEXT.params.scale_bits)
    own = exact.whole(found, CONTEXT.primes[:towers])
    assert np.abs(np.array(own, float) - due).max() <= 0.5 + 1e-6 * np.abs(due).max()


@pytest.mark.parametrize("size", SIZES)
def test_numbers_of_every_size_are_encoded_by_the_same_work(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()
    for transform in (from_slots, to_slots):

        def noted(values: Any, transform: Any = transform) -> Any:
            calls.append(transform.__name__)
            return transform(values)

        monkeypatch.setattr(flooding, transform.__name__, noted)
    encode_complex(CONTEXT, np.full(N // 2, size, np.complex128))
    assert calls == ["from_slots", "to_slots"]


def test_coefficients_come_back() -> None:
    coefficients = np.random.default_rng(5).normal(size=N)
    np.testing.assert_allclose(from_slots(to_slots(coefficients)), coefficients, atol=1e-12)
