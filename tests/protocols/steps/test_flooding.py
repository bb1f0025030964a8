"""Forty bits: what decryptions leave of the noise that they hide, in runs of every protocol.

LOOKS AT SECRETS. INSECURE toy rings. The error vector is measured whole, as the difference of runs
on the same rows under other keys: products that are off by the distance of a prime from the scale
are the same for all keys, and so a part of the function that is released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats

from protocols.ckks import DECRYPTION_TOWERS, CkksParameters
from protocols.ckks.circuits import projection
from protocols.ckks.circuits.coefficients import coefficients
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.flooding import Flooding
from protocols.ckks.transform import powers_of_five, to_slots
from protocols.errors import ParameterError
from protocols.model import protocol as encrypted_model
from protocols.model.plan import ModelPlan
from protocols.plan import kinds
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.steps import decrypt
from protocols.steps.decrypt import flooding_of
from tests.support import exact, helpers
from tests.support.alike import alike
from tests.support.flooding import bits as bits_left
from tests.support.helpers import Floats, Session, make_session
from tests.support.sessions import gram_session, lffr_model_session, lffr_session, run_until

RUNS = 3


def rows(update: str, degree: int, **changes: Any) -> Callable[[], Session]:
    return lambda: make_session(update=update, degree=degree, ring_dim=512, **changes)


def of_alike(make: Callable[[], Session]) -> Callable[[], Session]:
    """Rows that are all alike, in several groups."""

    def made() -> Session:
        with patch.object(helpers, "make_data", alike):
            return make()

    return made


MODEL: dict[str, Any] = {"make": ModelPlan, "features_per_ciphertext": 4}
SESSIONS: dict[str, Callable[[], Session]] = {
    "rows, two features": rows("gd", 3, features=2, rounds=2),
    "rows, gd": rows("gd", 7, features=9, rounds=4),
    "rows, nag": rows("nag", 3, features=5, parties=2, rounds=8),
    "rows, barrier": rows("barrier-4", 5, features=3, rounds=3),
    "rows, inverse": rows("quadratic-nag", 7, features=9, rounds=3),
    "rows, parts": rows("gd", 3, features=9, rounds=3, features_per_ciphertext=2),
    "rows, alike": of_alike(rows("gd", 3, features=4, rows=[256] * 3, rounds=4)),
    "gram": gram_session,
    "gram, blocks": lambda: gram_session(features=20, curvature_bound=40.0),
    "lffr": lffr_session,
    "model, gd": rows("gd", 3, features=9, rounds=3, **MODEL),
    "model, nag": rows("nag", 7, features=3, parties=2, rounds=5, **MODEL),
    "model, alike": of_alike(
        rows("gd", 3, features=9, rows=[256] * 2, parties=2, rounds=3, **MODEL)
    ),
    "model, lffr": lffr_model_session,
}


def opened(session: Session) -> tuple[Floats, Flooding]:
    """Coefficients of what the run decrypts, without its flooding; and that."""
    found: list[Floats] = []
    fuse, project = decrypt.fuse, projection.project

    def take(message: Any, primes: Any) -> None:
        if not found:
            found.append(coefficients(message, primes[:2]))

    def fused(context: CkksContext, message: Any) -> Any:
        take(message, context.primes)
        return fuse(context, message)

    def projected(message: Any, primes: Any, period: int) -> Any:
        if len(primes) == DECRYPTION_TOWERS:
            take(message, primes)
        return project(message, primes, period)

    def none(self: Flooding, context: CkksContext, towers: int, randomness: Any) -> Any:
        return np.zeros((towers, context.params.ring_dim), np.uint64)

    with (
        patch.object(Flooding, "draw", none),
        patch.object(decrypt, "fuse", fused),
        patch.object(encrypted_model.projection, "project", projected),
    ):
        session.run()
    return found[0], flooding_of(session.plan)


@cache
def measured(name: str) -> tuple[list[Floats], Flooding, Any]:
    """Error vectors, each of the norm of one run's; the flooding; the plan."""
    sessions = [SESSIONS[name]() for _ in range(RUNS)]
    found = [opened(session) for session in sessions]
    mean = np.mean([message for message, _ in found], axis=0)
    free = math.sqrt(RUNS / (RUNS - 1))
    return [free * (message - mean) for message, _ in found], found[0][1], sessions[0].plan


def even_as_before(flooding: Flooding, plan: Any) -> Flooding:
    """Sized by the mean coefficient, the same in all."""
    std = math.sqrt(12 * plan.decryptions) * 2**20 * kinds.model_error_std(plan)
    return Flooding.even(plan.ckks.ring_dim, std)


def others_not_hidden(flooding: Flooding, plan: Any) -> Flooding:
    """What is not released gets as much noise as what is."""
    return replace(flooding, rest=flooding.std)


def one_number(flooding: Flooding, plan: Any) -> Flooding:
    """Sized for the error of one released number."""
    return replace(flooding, std=flooding.std / math.sqrt(flooding.shown.sum()))


@pytest.mark.parametrize("name", SESSIONS)
def test_forty_bits_of_the_whole_error_vector(name: str) -> None:
    """By measurement, in every protocol."""
    errors, flooding, plan = measured(name)
    bits = [bits_left(flooding, error, plan.decryptions) for error in errors]
    assert 40 <= min(bits) <= max(bits) < 65, bits


@pytest.mark.parametrize("name", ["rows, gd", "rows, parts", "rows, alike"])
def test_what_was_sized_by_a_coefficient_has_fewer(name: str) -> None:
    """The same error vectors under the noise of earlier versions."""
    errors, flooding, plan = measured(name)
    before = even_as_before(flooding, plan)
    assert max(bits_left(before, error, plan.decryptions) for error in errors) < 36


def of_slots(slots: Any) -> Floats:
    """Coefficients with these slots, of any complex numbers: the inverse of `to_slots`."""
    n, found = 2 * len(slots), np.zeros(2 * len(slots), np.complex128)
    place = powers_of_five(len(slots))
    found[place // 2], found[(2 * n - place) // 2] = slots, np.conj(slots)
    turned: Floats = (np.fft.fft(found) / n * np.exp(-1j * np.pi / n * np.arange(n))).real
    return turned


def worst(flooding: Flooding, plan: Any) -> Floats:
    """An error vector at both bounds."""
    rng, n = np.random.default_rng(1), plan.ckks.ring_dim
    if len(flooding.shown) == n:
        shown = flooding.shown * kinds.shown_error_std(plan)
        rest = np.where(flooding.shown, 0.0, rng.normal(size=n))
    else:
        shown = of_slots(math.sqrt(n / 2) * flooding.shown * kinds.shown_error_std(plan))
        hidden = rng.normal(size=n // 2) * ~flooding.shown + 1j * rng.normal(size=n // 2)
        rest = of_slots(hidden)
    whole: Floats = shown + rest * math.sqrt(n) * kinds.model_error_std(plan) / np.linalg.norm(rest)
    return whole


def tau_forgotten(flooding: Flooding, plan: Any) -> Flooding:
    """One decryption's, where a coordinator may see two."""
    half = math.sqrt(plan.decryptions)
    return replace(flooding, std=flooding.std / half, rest=flooding.rest / half)


MUTANTS = (even_as_before, others_not_hidden, one_number)


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("cover", [None, 2])
def test_forty_bits_by_the_bounds(name: str, cover: int | None) -> None:
    """With nothing to spare; and what is sized otherwise has fewer."""
    session = SESSIONS[name]()
    run_until(session, "agree")
    plan = session.plan
    assert plan is not None
    if cover and len(plan.members) > cover:
        plan = replace(plan, cover=cover)
    flooding, tau = flooding_of(plan), plan.decryptions
    error = worst(flooding, plan)
    assert bits_left(flooding, error, tau) == pytest.approx(40, abs=1e-6)
    for mutant in (*MUTANTS, *([tau_forgotten] if tau > 1 else [])):
        assert bits_left(mutant(flooding, plan), error, tau) < 39.5, mutant


@pytest.mark.parametrize("kind", ["slots", "coefficients"])
def test_noise_is_drawn_as_stated(kind: str) -> None:
    """Both deviations, two-sided; no two draws alike; and 5 % more or less would be seen."""
    params = CkksParameters(ring_dim=4096, depth=3, security_bits=0)
    context, n = CkksContext(params, "flooding"), params.ring_dim
    shown = np.arange(n // 2 if kind == "slots" else n) % 4 == 1
    flooding = Flooding(shown, 2.0**30, 2.0**36)
    draws = [
        coefficients(flooding.draw(context, 2, source), context.primes[:2])
        for source in [SystemRandomness()] * 8 + [SeededRandomness(1), SeededRandomness(1)]
    ]
    assert (draws[8] == draws[9]).all() and np.abs(np.corrcoef(draws[:9]) - np.eye(9)).max() < 0.1
    stated = flooding.rms(n)
    assert exact.rms(np.concatenate(draws[:8])) == pytest.approx(stated, rel=0.03)
    if kind == "slots":
        places = [math.sqrt(2 / n) * to_slots(draw) for draw in draws[:8]]
        seen = np.concatenate([place.real[shown] for place in places])
        rest = np.concatenate([np.r_[p.real[~shown], p.imag] for p in places])
    else:
        seen = np.concatenate([draw[shown] for draw in draws[:8]])
        rest = np.concatenate([draw[~shown] for draw in draws[:8]])
    for values, std in ((seen, flooding.std), (rest, flooding.rest)):
        tolerance = 5 / math.sqrt(2 * values.size)
        assert tolerance < 0.06
        assert exact.rms(values) == pytest.approx(std, rel=tolerance)
        # By its own rms: by the stated one the standard error of a kurtosis is twice as large.
        kurtosis = np.mean(values**4) / exact.rms(values) ** 4
        assert abs(kurtosis - 3) < 8 * math.sqrt(24 / values.size)


def test_noise_beyond_doubles_has_all_its_bits() -> None:
    """Multiples of 2, 4, … would show what is added to them modulo that; too much is refused."""
    context = CkksContext(CkksParameters(ring_dim=4096, depth=3, security_bits=0), "large")
    flooding, primes = Flooding.even(4096, 2.0**62), context.primes[:2]
    with patch("protocols.ckks.flooding.FINE", math.inf):
        coarse = exact.whole(flooding.draw(context, 2, SystemRandomness()), primes)
    assert (coarse % 16 == 0).mean() > 0.9  # what is looked for
    drawn = exact.whole(flooding.draw(context, 2, SystemRandomness()), primes)
    assert exact.rms(drawn) == pytest.approx(2.0**62, rel=0.06)
    counts = np.bincount((drawn % 16).astype(int), minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-6
    with pytest.raises(ParameterError, match="above 2.80"):
        Flooding.even(4096, 2.0**81).draw(context, 2, SystemRandomness())
