"""Skellam noise against its exact law: divergences, table, ends, sampler, and a whole mechanism."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from protocols.errors import ParameterError
from protocols.privacy.laws import skellam_sampler as module
from protocols.privacy.laws.randomness import Words
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.laws.skellam import SKELLAM, SkellamEvent
from protocols.privacy.laws.skellam_sampler import skellam
from tests.protocols.privacy.checks import gaussian_accepted, pmf_accepted

Floats = NDArray[np.float64]
N = 60_000


@lru_cache
def log_pmf(variance: float, end: int) -> Floats:
    """ln P(k), k = 0 .. end, by ratios of Bessel functions in floating point."""
    ratios = np.zeros(end + 2)
    for k in range(end, 0, -1):
        ratios[k] = 1 / (2 * k / variance + ratios[k + 1])
    logs = np.append(0.0, np.cumsum(np.log(ratios[1 : end + 1])))
    return np.asarray(logs - logsumexp(np.append(logs, logs[1:])))


def test_the_law_is_the_library_s() -> None:
    theirs = stats.skellam.pmf(np.arange(60), 4.5, 4.5)
    assert np.exp(log_pmf(9.0, 400)[:60]) == pytest.approx(theirs, abs=1e-14)


def exact(variance: float, shift: int, order: int) -> float:
    """Renyi divergence of a law and the shifted one."""
    end = int(60 * math.sqrt(variance) + 20 * shift + 400)
    logs, k = log_pmf(variance, end), np.arange(-end + shift, end - shift + 1)
    terms = order * logs[np.abs(k - shift)] + (1 - order) * logs[np.abs(k)]
    assert max(terms[0], terms[-1]) < terms.max() - 40
    return float(logsumexp(terms)) / (order - 1)


CASES = [
    (v, x, a)
    for v in (1.0, 5.0, 30.0, 1000.0)
    for x in (1, 2, 5, 13)
    for a in (2, 3, 8, 32)
    if a * x < 20 * v
]


def test_divergences_are_within_the_theorem_and_the_event() -> None:
    for v, x, a in CASES:
        found, square = exact(v, x, a), a * x * x / (2 * v)
        more = min(((2 * a - 1) * x * x + 6 * x) / (4 * v * v), 3 * x / (2 * v))
        charged = a * event_of(v, x).single.rho
        assert found <= square + more <= charged * (1 + 1e-12), (v, x, a)
        # And not by much: the excess is below 1 % of the divergence from here on.
        assert v < 1000 or a * x > 100 or charged < 1.01 * found, (v, x, a)


def event_of(variance: float, shift: int, releases: int = 1) -> SkellamEvent:
    """Coarse grids exceed a Gaussian law by more than the event says, which is for 2^16 units."""
    multiplier = math.sqrt(variance / (1 + 9 / (4 * variance))) / shift
    return SkellamEvent(noise_multiplier=multiplier, count=releases)


def independent(variance: float, shift: int, releases: int, delta: float) -> float:
    """Epsilon of the exact law in one dimension, by dp-accounting's loss distribution."""
    end = int(16 * math.sqrt(variance))
    logs = log_pmf(variance, 2 * end)
    own, other = ({k: float(logs[abs(k - at)]) for k in range(-end, end + 1)} for at in (shift, 0))
    single = from_two_probability_mass_functions(other, own, value_discretization_interval=1e-4)
    return float(single.self_compose(releases).get_epsilon_for_delta(delta))


@pytest.mark.parametrize(("shift", "releases"), [(40, 1), (10, 16), (30, 4)])
def test_a_run_spends_less_than_it_claims(shift: int, releases: int) -> None:
    """On a grid of 2^7 units, where the law's excess over a Gaussian one is largest."""
    delta, variance = 1e-5, 4.0**7
    claimed = SKELLAM.epsilon([event_of(variance, shift, releases)], delta)
    assert 0.9 * claimed < independent(variance, shift, releases, delta) < claimed
    assert independent(variance / 1.25, shift, releases, delta) > claimed


@pytest.mark.parametrize("variance", [1, 9, 400])
def test_small_variances_have_the_exact_pmf(variance: int) -> None:
    values = skellam(variance, N, SeededRandomness(3))
    k, logs = np.arange(-100, 101), log_pmf(float(variance), 2000)
    assert pmf_accepted(values, logs[np.abs(k)], -100)
    for factor in (0.9, 1.1):  # 5 % in the standard deviation
        assert not pmf_accepted(values, log_pmf(factor * variance, 2000)[np.abs(k)], -100)


def test_a_large_variance_is_split_into_parts() -> None:
    units = 100_000
    values = skellam(units**2, N // 6, SeededRandomness(5)) / units
    assert gaussian_accepted(values, 1.0)
    assert not gaussian_accepted(values, 0.95) and not gaussian_accepted(values, 1.05)


@pytest.mark.parametrize("variance", [1, 400, 1 << 20])
def test_a_table_is_the_law(variance: int) -> None:
    cumulative, upper = module._table(variance)
    assert cumulative[-1] == 1 << 128 and cumulative == sorted(cumulative)
    logs = log_pmf(float(variance), len(cumulative) - 1)
    wanted = np.exp(logs[0]) + np.append(0.0, np.cumsum(2 * np.exp(logs[1:])))
    assert np.array([c / 2**128 for c in cumulative]) == pytest.approx(wanted, abs=1e-12)
    assert [int(u) for u in upper[:-1]] == [min(c >> 64, 2**64 - 1) for c in cumulative[:-1]]


def test_what_lies_beyond_a_table() -> None:
    """exp(v (cosh s - 1) - s k) at sinh s = k / v, for every size of a table."""
    for variance in (*range(1, 2000), 10**4, 1 << 26):
        k = len(module._table(variance)[0]) - 1
        s = math.asinh(k / variance)
        assert variance * 2 * math.sinh(s / 2) ** 2 - s * k < -147 * math.log(2)


class Words128:
    """A source whose every word is given."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> Words:
        """The next ones."""
        return np.array([self.left.pop(0) for _ in range(count)], dtype=np.uint64)


@pytest.mark.parametrize("k", [0, 1, 7])
def test_lower_bits_decide_where_upper_ones_do_not(k: int) -> None:
    edge = module._table(9)[0][k]
    high, low = edge >> 64, edge & (2**64 - 1)
    assert skellam(9, 1, Words128(high, low - 1, 0))[0] == k
    assert skellam(9, 1, Words128(high, low, 0))[0] == k + 1
    assert skellam(9, 1, Words128(high - 1, 0))[0] == k
    assert skellam(9, 1, Words128(high + 1, 2**64 - 1))[0] == -k - 1


def test_an_epsilon_that_no_order_can_tell_is_refused() -> None:
    with pytest.raises(ParameterError, match="take mechanism gaussian"):
        SKELLAM.budget(1e-4, 1e-12)
