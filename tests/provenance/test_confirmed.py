"""The audit of confirmed elements passes on every protocol, and finds what is left out (toy)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from parties.kernel.keys.session import refresh_reply, reply_of
from protocols.ckks import DECRYPTION_TOWERS
from protocols.exchange.messages import Body
from protocols.model import protocol as encrypted_model
from protocols.plan.protocol import Protocol
from protocols.rows import protocol as encrypted_rows
from protocols.steps.rounds import Rounds
from protocols.steps.survivors import Survivors
from tests.provenance.confirmed import unconfirmed
from tests.provenance.options import LOST, RUNS
from tests.provenance.runs import record, rows_session
from tests.support.masked import refresh_shares
from tests.support.sessions import model_session

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("name", [name for name in RUNS if name != "encrypted sums"])
def test_every_element_is_confirmed(name: str) -> None:
    assert unconfirmed(RUNS[name]()) == []


def without(protocol: Protocol, **left_out: bool) -> Protocol:
    """A protocol some of whose steps commit to nothing."""
    steps = [replace(s, committed=left_out.get(s.name, s.committed)) for s in protocol.steps]
    return replace(protocol, steps=tuple(steps))


def opened(protocol: Protocol) -> Protocol:
    """Whose party shows what it made at once: its kernel keeps nothing."""

    def refresh(half: Any, request: Any) -> Body:
        maps, step = half.plan.column_maps(request.index), f"{request.kind}/{request.index}"
        return refresh_reply(
            half.context, partial(refresh_shares, half.secret), maps, step, request.body
        )

    def decrypt(half: Any, request: Any) -> Body:
        share = partial(half.secret.decryption_share, label=request.kind)
        low = half.context.primes[:DECRYPTION_TOWERS]
        return reply_of(half.context, share, 1, low, request.body)

    shown = {"refresh": refresh, "decrypt": decrypt}
    steps = tuple(replace(s, answer=shown.get(s.name, s.answer)) for s in protocol.steps)
    return replace(protocol, steps=steps)


def model_without(patch: Patch) -> Any:
    """A gradient without its commitment."""
    changed = without(encrypted_model.PROTOCOL, gradient=False)
    patch.setattr(encrypted_model, "PROTOCOL", changed)
    return record(model_session())


def rows_without(patch: Patch) -> Any:
    """A refresh without its commitment."""
    changed = without(opened(encrypted_rows.PROTOCOL), refresh=False)
    patch.setattr(encrypted_rows, "PROTOCOL", changed)
    return record(rows_session())


def not_endorsed(patch: Patch) -> Any:
    """Nobody asks who was shown what."""
    patch.setattr(Rounds, "confirm", lambda self, step, request: None)
    honest = Survivors._answered

    def answered(self: Survivors, *asked: Any) -> Any:
        found = yield from honest(self, *asked)
        self._endorsed = Body()
        return found

    patch.setattr(Survivors, "_answered", answered)
    return record(model_session())


def covered_at_once(patch: Patch) -> Any:
    """Who stands in answers before all have signed who is missing."""
    shown = opened(encrypted_rows.PROTOCOL)
    steps = tuple(replace(s, silent=s.repeats) for s in shown.steps)
    changed = replace(shown, steps=steps)
    patch.setattr(encrypted_rows, "PROTOCOL", changed)
    patch.setattr(Rounds, "confirm", lambda self, step, request: None)
    return record(rows_session(parties=4, cover=2), LOST)


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        (model_without, "gradient/0: replies are sent that were not fixed"),
        (rows_without, "refresh/0: replies are sent that were not fixed"),
        (not_endorsed, "refresh/0: goes on before all have endorsed gradient/0"),
        (covered_at_once, "cover-refresh/1: replies are sent that were not fixed"),
    ],
)
def test_mutants_are_found(mutant: Callable[[Patch], Any], words: str, monkeypatch: Patch) -> None:
    assert words in " ".join(unconfirmed(mutant(monkeypatch)))
