"""Simulated transcripts beside real ones: same steps and sizes, no statistic tells them apart."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from tests.provenance import runs
from tests.provenance.attack import old_flow
from tests.provenance.runs import Run, record
from tests.provenance.simulator import Simulator
from tests.provenance.test_attack import key_halves
from tests.support import exact
from tests.support.sessions import N


@pytest.fixture(scope="module")
def real() -> Run:
    return record(runs.rows_session("nag", rounds=3))


@pytest.fixture(scope="module")
def simulated(real: Run) -> Run:
    return Simulator(real.plan, real.weights).run()


def shapes(run: Run) -> list[tuple[object, ...]]:
    """Step, party, what the request and the reply carry."""
    return [
        (
            step,
            name,
            tuple(map(len, request.blobs)),
            tuple(map(len, reply.blobs)),
            sorted(request.meta),
            sorted(reply.meta),
        )
        for step, name, request, reply in run.messages
    ]


def test_the_same_messages(real: Run, simulated: Run) -> None:
    """Steps, order, fields, bytes of every blob; and the release that it was made from."""
    assert shapes(simulated) == shapes(real) and len(shapes(real)) > 30
    np.testing.assert_allclose(simulated.weights, real.weights, atol=1e-6)


def unlike_uniform(run: Run) -> float:
    """Largest distance from uniform, in standard errors, of single residues and of pair sums.

    Single: the mean square of the residues of each polynomial. Pairs: of the coefficients of x + y
    and x - y modulo the last prime, for all halves of keys of a party.
    """
    scores = []
    n, context = run.plan.ckks.ring_dim, run.context
    for _, _, _, reply in run.messages:
        for blob in reply.blobs:
            rows = np.frombuffer(blob, "<u8").reshape(-1, n)
            for row in rows:
                if row.max() > 1 << 58:
                    scores.append(_score(exact.centred(row.astype(object), _prime(run, row))))
    count, prime = len(context.extended_primes), context.extended_primes[-1]
    for halves in key_halves(run).values():
        polynomials = [h[k : k + count][-1] for h in halves for k in range(0, len(h), count)]
        seen = [exact.coefficients(row, prime) / prime for row in polynomials]
        for left, right in combinations(seen, 2):
            scores += [_score((left + sign * right + 0.5) % 1 - 0.5) for sign in (1, -1)]
    return max(scores)


def _prime(run: Run, row: np.ndarray) -> int:
    return min(prime for prime in run.context.extended_primes if prime > row.max())


def _score(values: np.ndarray) -> float:
    """Of 12 mean x^2 = 1 for uniform x in (-1/2, 1/2), variance 4/5 a coefficient."""
    x = np.asarray(values, float)
    x = x / (2 * np.abs(x).max()) if np.abs(x).max() > 1 else x
    return float(abs(12 * np.mean(x**2) - 1) * math.sqrt(len(x) / 0.8))


def test_no_statistic_tells_them_apart(real: Run, simulated: Run) -> None:
    """Thousands of scores below six; the flow of old has pair sums of a hundredth of the width."""
    assert unlike_uniform(real) < 6
    assert unlike_uniform(simulated) < 6
    with old_flow():
        old = record(runs.rows_session("nag", rounds=3))
    assert unlike_uniform(old) > 0.99 * math.sqrt(N / 0.8)
