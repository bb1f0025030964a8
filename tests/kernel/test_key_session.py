"""A session of CKKS keys under a verifier that asks for anything, in any order.

Each floor has a mutant: the same file with one line changed, under which its check fails.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.kernel import key_session
from parties.kernel.key_session import KeySession
from parties.kernel.private import Private, Terms
from parties.kernel.sheet import KeysSheet
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.flooding import rounding_std
from protocols.ckks.parameters import REFRESH_TOWERS, CkksParameters
from protocols.errors import ParameterError, PolicyError

N, COLLUDERS = 512, 1
KEYS = {name: Ed25519PrivateKey.generate() for name in ("a", "b", "c", "d")}
ROSTER = tuple((name, key.public_key().public_bytes_raw().hex()) for name, key in KEYS.items())
TOY = CkksParameters(ring_dim=N, depth=3, security_bits=0)
SECURE = CkksParameters(ring_dim=16384, depth=3)
ERROR = 4 * rounding_std(TOY, 4)
SHEET = KeysSheet(
    session="keys",
    roster=ROSTER,
    params=TOY,
    cover=None,
    rotations=(1, 2),
    refreshes=(2, 1),
    shown=(0, 4, 8),
    coordinates=N // 2,
    shown_error=ERROR,
    error=ERROR,
    decryptions=1,
)


@cache
def context() -> CkksContext:
    return CkksContext(TOY, "keys")


def rows_of(**terms: Any) -> Any:
    agreed: dict[str, Any] = {"insecure": True, "colluders": COLLUDERS, "exact": False}
    private = Private(SimpleNamespace(spend=lambda: None))
    private.terms = Terms(**(agreed | terms))
    return private.keep(np.zeros(3))


def session_of(kernel: Any = key_session, sheet: KeysSheet = SHEET, **terms: Any) -> KeySession:
    found: KeySession = kernel.KeySession(sheet, "a", rows_of(**terms), KEYS["a"])
    return found


def begun(kernel: Any = key_session, **changes: Any) -> KeySession:
    session = session_of(kernel, replace(SHEET, **changes))
    session.begin(bytes(32), context())
    return session


def refused(kernel: Any, terms: dict[str, Any] | None = None, **changes: Any) -> bool:
    """Whether a sheet with this difference is, before a key is made."""
    try:
        session_of(kernel, replace(SHEET, **changes), **(terms or {}))
    except (PolicyError, ParameterError):
        return True
    except Exception:
        return False
    return False


def fails(ask: Callable[[], Any]) -> bool:
    """Whether the session refuses it."""
    try:
        ask()
    except PolicyError:
        return True
    except Exception:
        return False
    return False


def c1(towers: int) -> Any:
    return np.ones((towers, N), np.uint64)


def other_labels_are_not_decrypted(kernel: Any) -> bool:
    """By names of its own a verifier would have as many decryptions as it likes."""
    session = begun(kernel)
    names = ("decrypt/1", "refresh/0/0", "cover-decrypt", "", "decrypt ")
    return all(fails(lambda n=n: session.decryption_share(c1(2), n)) for n in names)  # type: ignore[misc]


def refreshes_are_the_sheets(kernel: Any) -> bool:
    session = begun(kernel)
    names = ("refresh/0/2", "refresh/1/1", "refresh/2/0", "refresh/00/0", "cover-refresh/0/0", "r")
    asked = (session.refresh_shares, session.trace_shares)
    return all(
        fails(lambda f=f, n=n: f([(c1(REFRESH_TOWERS), n, None)]))  # type: ignore[misc]
        for n in names
        for f in asked
    )


def rotations_are_the_sheets(kernel: Any) -> bool:
    return fails(lambda: begun(kernel).rotation_share(3))


def there_is_one_key_share(kernel: Any) -> bool:
    return fails(lambda: begun(kernel).begin(bytes(32), context()))


def the_context_is_the_sheets(kernel: Any) -> bool:
    other = CkksContext(replace(TOY, depth=4), "other")
    return fails(lambda: session_of(kernel).begin(bytes(32), other))


def nothing_leaves_an_ended_session(kernel: Any) -> bool:
    session = begun(kernel)
    session.erase()
    return fails(lambda: session.refresh_shares([(c1(REFRESH_TOWERS), "refresh/0/0", None)]))


TRUE = "lambda: True"
FLOORS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "own name and key": (
        "lambda: roster.get(name) == key", TRUE,
        lambda k: refused(k, roster=(("a", ROSTER[1][1]), ("b", ROSTER[0][1]), *ROSTER[2:])),
    ),
    "one party twice": (
        "lambda: len({*roster.values()}) == len(roster) == parties", TRUE,
        lambda k: refused(k, roster=(*ROSTER[:3], ("d", ROSTER[2][1]))),
    ),
    "least members": (
        "lambda: parties >= terms.colluders + 2", TRUE, lambda k: refused(k, roster=ROSTER[:2]),
    ),
    "a toy ring": (
        "lambda: params.security_bits > 0 or terms.insecure", TRUE,
        lambda k: refused(k, {"insecure": False}),
    ),
    "cover by colluders": (
        "lambda: cover is None or terms.colluders < cover <= parties", TRUE,
        lambda k: refused(k, cover=1, decryptions=2),
    ),
    "refreshes": (
        "lambda: all(type(n) is int and n >= 0 for n in sheet.refreshes)", TRUE,
        lambda k: refused(k, refreshes=(1.5,)),
    ),
    "shown": (
        "lambda: bool(shown) and {*shown} < {*range(sheet.coordinates)}", TRUE,
        lambda k: refused(k, shown=()) and refused(k, shown=(N,)) and refused(k, shown=(0.5,)),
    ),
    "coordinates": (
        "lambda: sheet.coordinates in (params.ring_dim, params.num_slots)", TRUE,
        lambda k: refused(k, coordinates=9),
    ),
    "flooding": (
        "lambda: min(sheet.shown_error, sheet.error) >= least", TRUE,
        lambda k: refused(k, error=0.9 * rounding_std(TOY, 4)) and refused(k, shown_error=0.0),
    ),
    "two decryptions with cover": (
        "lambda: sheet.decryptions >= (1 if cover is None else 2)", TRUE,
        lambda k: refused(k, cover=3),
    ),
    "one decryption": ("if label not in (", "if False and label not in (",
                       other_labels_are_not_decrypted),
    "refreshes of the sheet": ("if position >= due", "if False", refreshes_are_the_sheets),
    "rotations of the sheet": ("if index not in self._sheet.rotations", "if False",
                               rotations_are_the_sheets),
    "one key share": ("        if self._share is not None:\n            raise",
                      "        if False:\n            raise", there_is_one_key_share),
    "ring of the context": ("if context.params != self._sheet.params", "if False",
                            the_context_is_the_sheets),
    "the end": ("                secret.erase()\n", "                pass\n",
                nothing_leaves_an_ended_session),
}  # fmt: skip


def mutant(old: str, new: str) -> ModuleType:
    """The session's file with one line changed."""
    source = Path(str(key_session.__file__)).read_text()
    assert source.count(old) == 1, old
    found = ModuleType("mutant")
    exec(compile(source.replace(old, new), "mutant", "exec"), found.__dict__)
    return found


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_holds_and_its_mutant_is_seen(floor: str) -> None:
    old, new, holds = FLOORS[floor]
    assert holds(key_session)
    assert not holds(mutant(old, new))


def test_rings_are_from_the_kernels_own_table() -> None:
    """A parameters' object that somebody forged is checked again."""
    forged = replace(SECURE)
    object.__setattr__(forged, "depth", 20)
    assert not refused(key_session, {"insecure": False}, params=SECURE, coordinates=8192,
                       shown_error=1e9, error=1e9)  # fmt: skip
    assert refused(key_session, params=forged, coordinates=8192, shown_error=1e9, error=1e9)


def test_a_sheet_has_one_digest() -> None:
    changed = {f.name: "?" for f in fields(SHEET) if f.name != "params"}
    sheets = [replace(SHEET, **{name: value}) for name, value in changed.items()]  # type: ignore[arg-type]
    sheets += [SHEET, replace(SHEET, params=SECURE)]
    assert len({sheet.digest() for sheet in sheets}) == len(sheets)


def test_a_session_tells_no_secret() -> None:
    session = begun()
    assert repr(session) == str(session) == "KeySession(<secret>)"


LABELS = st.sampled_from(
    ["decrypt", "cover-decrypt", "refresh/0/0", "refresh/0/1", "refresh/1/0", "refresh/9/0", "x"]
)
ASKING = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["decrypt", "refresh", "trace"]), LABELS, st.integers(1, 3)),
        st.tuples(st.just("rotation"), st.integers(-1, 4)),
        st.tuples(st.sampled_from(["public", "first", "second", "begin", "state", "erase"])),
    ),
    max_size=14,
)


def answered(session: KeySession, step: str, *operands: Any) -> Any:
    if step in ("refresh", "trace"):
        label, value = operands
        ask = session.refresh_shares if step == "refresh" else session.trace_shares
        return ask([(value * c1(REFRESH_TOWERS), label, None)])  # type: ignore[arg-type, list-item]
    if step == "decrypt":
        label, value = operands
        return session.decryption_share(value * c1(2), label)
    half = c1(len(context().key_primes))
    return {
        "rotation": session.rotation_share,
        "public": session.public_share,
        "first": session.relinearisation_first,
        "second": lambda: session.relinearisation_second(half, half),
        "begin": lambda: session.begin(bytes(32), context()),
        "state": lambda: session.state(lambda plain: b""),
        "erase": session.erase,
    }[step](*operands)


@settings(max_examples=150, deadline=None)
@given(asking=ASKING)
def test_a_hostile_verifier_gets_each_label_once(asking: list[tuple[Any, ...]]) -> None:
    """One decryption, refreshes and rotations of the sheet, each once; no object with a secret."""
    session, got = begun(), []
    for step, *operands in asking:
        with suppress(Exception):
            found = answered(session, step, *operands)
            if step in ("decrypt", "refresh", "trace"):
                got.append(operands[0])
            if step in ("rotation", "first", "second"):
                got.append((step, *operands))
            assert not isinstance(found, key_session.KeyShare)
    assert len(got) == len({*got})
    labels = {"decrypt", "refresh/0/0", "refresh/0/1", "refresh/1/0"}
    rotations = {("rotation", 1), ("rotation", 2), ("first",), ("second",)}
    assert {*got} <= labels | rotations
