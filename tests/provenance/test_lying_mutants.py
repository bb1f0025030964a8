"""Parties that do one thing and note another: the bytes give them away (toy runs, INSECURE)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import parties.kernel.keys.key_share as key_share
from parties.kernel.keys.key_share import KeyShare
from parties.kernel.rows import masks
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.flooding import FRESH_ERROR_STD
from protocols.ckks.residues import add
from protocols.errors import ProtocolError
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.discrete import narrow_gaussian
from tests.provenance import residuals, runs
from tests.provenance.attack import old_flow
from tests.provenance.residuals import UntrueError
from tests.provenance.runs import record
from tests.support import exact

Mutant = Callable[[], Any]


def second_round(error: Callable[[KeyShare, Any], Any]) -> Mutant:
    """t with another error; error: of a key share, evaluation form."""

    def second(share: KeyShare, h0: Any, h1: Any) -> Any:
        primes = share.context.key_primes
        assert share._ephemeral is not None
        ephemeral = share._ephemeral.copy()
        KeyShare_second(share, h0, h1)  # notes the samples

        def rows(key: Any) -> Any:
            one = [exact.evaluations(key.astype(object), q) for q in share.context.extended_primes]
            return np.concatenate([np.array(one, np.uint64)] * share.context.params.num_digits)

        s, u = rows(share._secret), rows(ephemeral)
        t = add(rns.product(s, h0, primes), rns.product(u, h1, primes), primes)
        t = rns.subtract(t, rns.product(s, h1, primes), primes)
        return add(t, error(share, primes), primes)

    KeyShare_second = KeyShare.relinearisation_second
    return lambda: patch.object(KeyShare, "relinearisation_second", second)


def no_error(share: KeyShare, primes: Any) -> Any:
    return np.zeros((len(primes), share.context.params.ring_dim), np.uint64)


def one_error(share: KeyShare, primes: Any) -> Any:
    """The same in all digits."""
    rng, n = np.random.default_rng(1), share.context.params.ring_dim
    error = np.rint(rng.normal(0, key_share._ROUND_TWO_STD, n)).astype(int)
    one = [exact.evaluations(error, q) for q in share.context.extended_primes]
    return np.concatenate([np.array(one, np.uint64)] * share.context.params.num_digits)


@contextmanager
def one_mask() -> Iterator[None]:
    """Every refresh of a run under the same M."""
    draw, kept = masks.draw_mask, dict[int, Any]()

    def again(primes: Any, parties: int, n: int, randomness: Any) -> Any:
        return kept.setdefault(n, draw(primes, parties, n, randomness)).copy()

    with patch.object(masks, "draw_mask", again):
        yield


def gaussian(change: Callable[[Any], Any]) -> Mutant:
    """Another error in the public key and in h1 of a refresh."""

    def drawn(context: CkksContext, count: int) -> list[Any]:
        random, n = SystemRandomness(), context.params.ring_dim
        errors = [change(narrow_gaussian(FRESH_ERROR_STD, n, random)) for _ in range(count)]
        return [
            np.array([exact.evaluations(error, q) for q in context.primes], np.uint64)
            for error in errors
        ]

    return lambda: patch.object(key_share, "fresh_errors", drawn)


@contextmanager
def one_key_half() -> Iterator[None]:
    """One a for all digits of every evaluation key; the coordinator's as well, so that it fits."""
    whole = CkksContext.uniform_key_half

    def repeated(context: CkksContext, seed: bytes, label: str) -> Any:
        first = whole(context, seed, label)[: len(context.extended_primes)]
        return np.concatenate([first] * context.params.num_digits)

    with patch.object(CkksContext, "uniform_key_half", repeated):
        yield


@contextmanager
def multiple_of_the_public_key() -> Iterator[None]:
    """Refresh elements are 3 a, a of the public key."""
    whole = CkksContext.uniform_polynomial

    def multiple(context: CkksContext, seed: bytes, label: str) -> Any:
        if not label.startswith("refresh"):
            return whole(context, seed, label)
        found = whole(context, seed, "public-key")
        return rns.scale(found, [3] * len(found), context.primes)

    with patch.object(CkksContext, "uniform_polynomial", multiple):
        yield


LIES: dict[str, tuple[Mutant, str]] = {
    "old flow": (old_flow, "s and .* u are not independent"),
    "no e2": (second_round(no_error), "error of relinearisation/0/t has std 0"),
    "one e2 for two digits": (second_round(one_error), "/t are not independent"),
    "reused M": (one_mask, "/h0 are not independent"),
    "half the error": (gaussian(lambda e: e // 2), "error of public-key has std [12]"),
    "twice the error": (gaussian(lambda e: e * 2), "error of public-key has std [56]"),
    "one a for two digits": (one_key_half, "error of relinearisation/1/h0 has std"),
    "an element 3 a": (multiple_of_the_public_key, "error of refresh/0/0/h1 has std"),
}


@pytest.mark.parametrize("name", LIES)
def test_the_bytes_give_it_away(name: str) -> None:
    """The ledger is as it should be, and the model is right: only residuals show it."""
    mutant, words = LIES[name]
    with mutant():
        session = runs.rows_session()
        run = record(session)
    np.testing.assert_allclose(run.weights, session.twin(), atol=1e-4)
    with pytest.raises(UntrueError, match=words):
        residuals.check(run)


def test_an_unlisted_sample_is_found() -> None:
    """A refresh whose samples nobody notes."""

    def silently(share: KeyShare, *samples: Any) -> None:
        if not samples[0].label.startswith("refresh/1"):
            share._ledger.note(*samples)

    with patch.object(KeyShare, "_note", silently):
        run = record(runs.rows_session())
    with pytest.raises(UntrueError, match=r"refresh/1/0/h0, refresh/1/0/h1 stand in the ledger or"):
        residuals.check(run)


def test_an_element_that_c1_does_not_bind_is_never_made() -> None:
    """The ledger refuses it, in the midst of a run."""
    run = runs.rows_session()
    with (
        patch.object(CkksContext, "refresh_label", staticmethod(lambda label, c1: label)),
        pytest.raises(ProtocolError, match="does not depend on what its pad masked"),
    ):
        record(run)
