"""What a kernel made of chosen operands stays there until everybody has signed for the same ones.

Each floor has a mutant: the same file with one line changed, under which its check fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.kernel import EVERY
from parties.kernel import run as run_of
from parties.kernel.keys import session as key_session
from parties.kernel.keys.session import KeySession
from parties.kernel.private import Terms
from parties.kernel.rows.session import RowsSession
from protocols.ckks import DECRYPTION_TOWERS, REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.errors import CohortError, PolicyError
from protocols.exchange import Body, commit_of
from protocols.exchange.signed_messages import to_request
from protocols.exchange.signed_values import SignedValue
from protocols.privacy.laws import SystemRandomness
from protocols.steps import endorsed
from protocols.steps.confirmed import View
from tests.kernel.test_key_session import (
    KEYS,
    ROSTER,
    SEED,
    SHEET,
    N,
    begun,
    context,
    refuses,
    rows_of,
)
from tests.support.helpers import through_the_codec

BEFORE = "ab" * 32
STEPS = ("refresh/0", "decrypt", "relinearise")


def asked(step: str, value: int = 1) -> Body:
    """A request of a step, with chosen operands."""
    primes = context().primes
    if step == "relinearise":
        primes = context().key_primes
        return Body({}, (rns.pack(np.full((len(primes), N), value, np.uint64), primes),) * 2)
    low = primes[: REFRESH_TOWERS if step.startswith("refresh") else DECRYPTION_TOWERS]
    return Body({}, (rns.pack(np.full((len(low), N), value, np.uint64), low),))


def held_refresh(session: KeySession, step: str, before: str, request: Body) -> Body:
    """As a session of encrypted rows has it made."""
    rows = RowsSession.__new__(RowsSession)
    rows._terms = Terms(keys=lambda: session)
    return rows.hold_refresh((None, None), step, before, request)


def hold(session: KeySession, step: str, request: Body, before: str = BEFORE) -> SignedValue:
    """Have the session make its reply and keep it."""
    if step == "relinearise":
        session.relinearisation_first()
    makes: dict[str, Callable[..., Body]] = {
        "refresh/0": partial(held_refresh, session),
        "decrypt": session.hold_decryption,
        "relinearise": session.hold_relinearisation,
    }
    return SignedValue.of(dict(makes[step](step, before, request).meta))


def signed(
    step: str, request: Body, own: SignedValue, names: str = "bcd", before: str = BEFORE, **by: str
) -> Body:
    """What the others sign who were asked this; by: whose key signs for whom."""
    view = View(b"")
    view.digest = before
    view.note(commit_of(step), request)
    terms = endorsed.of_round(dict(ROSTER), step, SEED, (), view.digest)
    text = partial(terms.text, "commitment")
    others = {
        name: SignedValue.by(KEYS[by.get(name, name)], text, name, f"{ord(name):02x}" * 32)
        for name in names
    }
    return to_request({"a": own, **others})


@pytest.mark.parametrize("step", STEPS)
def test_a_reply_opens_once_everybody_has_signed(step: str) -> None:
    session, request = begun(), asked(step)
    own = hold(session, step, request)
    opened = session.open_reply(signed(step, request, own))
    assert opened.blobs
    with pytest.raises(PolicyError, match="no reply is kept"):
        session.open_reply(signed(step, request, own))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda step, request, own: signed(step, asked(step, 2), own),
        lambda step, request, own: signed(step, request, own, "bc"),
        lambda step, request, own: signed(step, request, own, before="cd" * 32),
        lambda step, request, own: signed(step, request, own, b="c"),
        lambda step, request, own: signed("refresh/1", request, own),
        lambda step, request, own: signed(step, request, replace(own, value="00" * 32)),
        lambda step, request, own: to_request({"a": own}),
        lambda step, request, own: Body(),
    ],
    ids=("operands", "one missing", "view", "other key", "step", "own", "alone", "none"),
)
def test_nothing_opens_otherwise(step: str, wrong: Any) -> None:
    session, request = begun(), asked(step)
    own = hold(session, step, request)
    assert refuses(lambda: session.open_reply(wrong(step, request, own)))


def test_nothing_is_kept_before_and_after() -> None:
    session = begun()
    with pytest.raises(PolicyError, match="no reply is kept"):
        session.open_reply(Body())
    own = hold(session, "decrypt", asked("decrypt"))
    session.erase()
    assert refuses(lambda: session.open_reply(signed("decrypt", asked("decrypt"), own)))


def test_a_reply_is_kept_over_a_restart() -> None:
    session, request = begun(), asked("decrypt")
    own = hold(session, "decrypt", request)
    again = KeySession(SHEET, "a", rows_of(), KEYS["a"])
    again.restore(through_the_codec(session.state()))
    before = session.open_reply(signed("decrypt", request, own))
    assert again.open_reply(signed("decrypt", request, own)).blobs == before.blobs


# -- floors ---------------------------------------------------------------------------------------


def operands_are_what_was_signed_for(kernel: Any) -> bool:
    """The others were asked for another c1: the share would show the key."""
    session = begun(kernel)
    own = hold(session, "decrypt", asked("decrypt", 1 << 40))
    return refuses(lambda: session.open_reply(signed("decrypt", asked("decrypt"), own)))


def signatures_are_asked_for(kernel: Any) -> bool:
    session, request = begun(kernel), asked("refresh/0")
    own = hold(session, "refresh/0", request)
    return refuses(lambda: session.open_reply(to_request({"a": own})))


def relinearisation_has_its_step(kernel: Any) -> bool:
    session = begun(kernel)
    session.relinearisation_first()
    request = asked("relinearise")
    return refuses(lambda: session.hold_relinearisation("refresh/0", BEFORE, request))


FLOORS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "operands": ("view.note(commit_of(step), body)", "view.note(commit_of(step), ASKED)",
                 operands_are_what_was_signed_for),
    "signatures": ("found = terms.open(message, request, self._name, self._signing_key)",
                   "found = message", signatures_are_asked_for),
    "step": ("if step != RELINEARISE", "if False", relinearisation_has_its_step),
}  # fmt: skip


def mutant(module: ModuleType, old: str, new: str, **names: Any) -> Any:
    """A file with one line changed."""
    source = Path(str(module.__file__)).read_text()
    assert source.count(old) == 1, old
    found = ModuleType("mutant")
    vars(found).update(names)
    exec(compile(source.replace(old, new), "mutant", "exec"), found.__dict__)
    return found


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_holds_and_its_mutant_is_seen(floor: str) -> None:
    old, new, holds = FLOORS[floor]
    assert holds(key_session)
    assert not holds(mutant(key_session, old, new, ASKED=asked("decrypt")))


# -- the door of a run ----------------------------------------------------------------------------


def opens(kernel: Any, peers: Any, protocols: Any = EVERY) -> bool:
    """Whether a run of an owner with these peers and protocols signs a sheet of keys."""
    account = SimpleNamespace(booked=None, spend=lambda: None, is_spent=False)
    run = kernel.Run(
        name="a",
        rows=SimpleNamespace(rows=3),
        signing_key=KEYS["a"],
        randomness=SystemRandomness(),
        account=account,
        coins=SimpleNamespace(),
        terms=Terms(exact=False, insecure=True, colluders=1, protocols=protocols),
        peers=peers,
    )
    try:
        run.open(SHEET, run.rows)
        commitments = {name: "00" * 32 for name, _ in ROSTER} | {"a": run.commitment}
        run.agree("00" * 32, commitments)
    except CohortError:
        return False
    return True


def known(*names: str) -> Callable[[], dict[str, str]]:
    return lambda: {name: key for name, key in ROSTER if name in names}


def members_are_known(kernel: Any) -> bool:
    """Otherwise whoever drives it makes up members, and signs for all of them."""
    swapped = {**known("b", "c")(), "d": dict(ROSTER)["c"]}
    strangers = [known(), known("b", "c"), lambda: swapped]
    return opens(kernel, known("b", "c", "d")) and not any(opens(kernel, p) for p in strangers)


def protocols_are_the_owners(kernel: Any) -> bool:
    rows, sums = ("encrypted-rows",), ("secure-aggregation",)
    return opens(kernel, None, rows) and not opens(kernel, None, sums)


DOOR: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "members": ("known.get(name) != own]", "False]", members_are_known),
    "protocols": (
        "named(SESSIONS[kind], self.terms.protocols)",
        "named(SESSIONS[kind], EVERY)",
        protocols_are_the_owners,
    ),
}


@pytest.mark.parametrize("floor", DOOR)
def test_the_door_holds_and_its_mutant_is_seen(floor: str) -> None:
    old, new, holds = DOOR[floor]
    assert holds(run_of)
    assert not holds(mutant(run_of, old, new, EVERY=EVERY))
