"""What a coalition sees. Each test has a control in which the same attack, with one secret more,
works: so it could fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from protocols.aggregate.choice import choose
from protocols.aggregate.ntt import ring_of
from tests.protocols.aggregate.cohort import Cohort, make_cohort

LENGTH = 2048
PARAMS = choose(parties=5, largest_sum=10.0, precision=2.0**-20)


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return make_cohort(PARAMS, seed=11)


def open_with(cohort: Cohort, t: int, b: np.ndarray, key: np.ndarray) -> np.ndarray:
    return cohort.opener(key).open(t, b % np.array(PARAMS.primes, np.uint64)[:, None])


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_one_partys_transcript_looks_uniform(cohort: Cohort, fill: float) -> None:
    """chi2 over 64 cells and over the lowest 4 bits, of 5 messages of a constant vector."""
    start = 20 if fill else 10
    share = cohort.shares["party-0"]
    b = np.concatenate([share.encrypt(start + t, np.full(LENGTH, fill)) for t in range(5)], axis=1)
    for row, p in zip(b, PARAMS.primes, strict=True):
        assert stats.chisquare(np.histogram(row, bins=64, range=(0, p))[0]).pvalue > 1e-4
        assert stats.chisquare(np.bincount(row.astype(np.int64) % 16)).pvalue > 1e-4
    # Serial correlation within and between messages.
    centred = b[0].astype(float) - b[0].mean()
    for lag in (1, LENGTH):
        r = (centred[lag:] * centred[:-lag]).mean() / centred.var()
        assert abs(r) < 4.5 / math.sqrt(b.shape[1])


def test_colluders_cannot_open_one_honest_message_but_the_sum_of_two() -> None:
    """Coordinator and P - 2 parties know s, every s_q but two, hence s_0 + s_1."""
    cohort = make_cohort(PARAMS, seed=3)
    secrets = {name: share._unmasked.copy() for name, share in cohort.shares.items()}
    s = cohort.opening_key()
    rng = np.random.default_rng(4)
    v = {name: rng.uniform(-1, 1, LENGTH) for name in cohort.names}
    b = {name: cohort.shares[name].encrypt(0, v[name]) for name in cohort.names}
    colluders = cohort.names[2:]
    hint = s - sum(secrets[name] for name in colluders)
    assert (hint == secrets["party-0"] + secrets["party-1"]).all()

    pair = open_with(cohort, 0, b["party-0"] + b["party-1"], hint)
    assert np.abs(pair - v["party-0"] - v["party-1"]).max() <= PARAMS.error_bound

    def correlation(opened: np.ndarray) -> float:
        return float(abs(np.corrcoef(opened, v["party-0"])[0, 1]))

    # The control: with the secret itself the attack is perfect.
    assert correlation(open_with(cohort, 0, b["party-0"], secrets["party-0"])) > 0.999999
    guesses = {
        "nothing": np.zeros_like(s),
        "s": s,
        "the honest sum": hint,
        "the most likely secret": hint // 2,
        "rounded up": -(-hint // 2),
        "a colluder's": secrets[colluders[0]],
    }
    for guess in guesses.values():
        # 5 standard errors; 12 trials.
        assert correlation(open_with(cohort, 0, b["party-0"], guess)) < 5 / math.sqrt(LENGTH)
    difference = b["party-0"] + (ring_of(PARAMS).modulus - b["party-1"])
    for guess in (np.zeros_like(s), hint, s):
        assert correlation(open_with(cohort, 0, difference, guess)) < 5 / math.sqrt(LENGTH)


def test_given_the_sum_an_honest_secret_keeps_half_its_variance() -> None:
    """s_0 - (s_0 + s_1) / 2 has variance NOISE_STD^2 / 2; 5 % is 5 standard errors of it."""
    halves = []
    for seed in range(10):
        shares = make_cohort(choose(parties=2, largest_sum=1.0, precision=0.1), seed).shares
        first, second = (share._unmasked for share in shares.values())
        halves.append(first - (first + second) / 2)
    assert np.var(halves) == pytest.approx(2 * 3.19**2, rel=0.05)
