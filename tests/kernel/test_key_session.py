"""A session of CKKS keys under a verifier that asks for anything, in any order.

Each floor has a mutant: the same file with one line changed, under which its check fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.kernel.cover import CoveredSheet
from parties.kernel.cover import session as covered_keys
from parties.kernel.keys import KeysSheet
from parties.kernel.keys import session as key_session
from parties.kernel.keys.session import KeySession
from parties.kernel.private import Private, Terms
from parties.kernel.sheet import digest_of as sheet_digest
from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.flooding import rounding_std
from protocols.errors import CohortError, ParameterError, PolicyError
from protocols.exchange import Body
from protocols.exchange.signed_values import SignedValue, committed_text, digest_of
from tests.kernel.mutants import mutant
from tests.support.masked import refresh_shares, trace_shares

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
    agreed["joint_seed"] = lambda seeds: SEED
    private = Private(SimpleNamespace(spend=lambda: None))
    private.terms = Terms(**(agreed | terms))
    return private.keep(np.zeros(3))


def session_of(kernel: Any = key_session, sheet: KeysSheet = SHEET, **terms: Any) -> KeySession:
    found: KeySession = kernel.KeySession(sheet, "a", rows_of(**terms), KEYS["a"])
    return found


def begun(kernel: Any = key_session, **changes: Any) -> KeySession:
    session = session_of(kernel, replace(SHEET, **changes))
    session.begin({})
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


SEED = bytes(32)


def a_share(session: KeySession, name: str, own: Any = None) -> tuple[bytes, list[str], Any]:
    """A party's b_p, digests of what it sent beside, and its commitment to all."""
    primes = context().primes
    b = np.ones((len(primes), N), np.uint64)
    if name == "a":
        b = session.public_share() if own is None else own
    blob, rest = rns.pack(b, primes), ["00" * 32]
    text = partial(committed_text, "commitment", "keys", SEED)
    told = digest_of([hashlib.sha256(blob).hexdigest(), *rest])
    return blob, rest, SignedValue.by(KEYS[name], text, name, told)


def add(session: KeySession, *names: str, **changed: Any) -> None:
    """Hand over shares of these parties; changed: what is wrong of the last one."""
    own = changed.get("own")
    made = {name: a_share(session, name, own) for name in names}
    blob, rest, said = made[names[-1]]
    made[names[-1]] = changed.get("blob", blob), rest, changed.get("said", said)
    shares = Body(
        {"others": {n: m[1] for n, m in made.items()}}, tuple(m[0] for m in made.values())
    )
    session.add_public_shares(names, shares, {n: m[2] for n, m in made.items()})


def refuses(ask: Callable[[], Any]) -> bool:
    """Whether the session does, for whatever stated reason."""
    try:
        ask()
    except CohortError:
        return True
    return False


def shares_are_as_committed(kernel: Any) -> bool:
    """Otherwise whoever drives the session encrypts its rows under a key of its own."""
    session = begun(kernel)
    primes = context().primes
    blob = rns.pack(np.full((len(primes), N), 2, np.uint64), primes)
    return refuses(lambda: add(session, "b", blob=blob)) and session.joint_key is None


def commitments_are_signed(kernel: Any) -> bool:
    session = begun(kernel)
    forged = SignedValue(a_share(session, "b")[2].value, a_share(session, "c")[2].signature)
    return refuses(lambda: add(session, "b", said=forged))


def each_has_one_share(kernel: Any) -> bool:
    session = begun(kernel)
    add(session, "b")
    return refuses(lambda: add(session, "b")) and refuses(lambda: add(session, "c", "c"))


def the_own_share_is_its_own(kernel: Any) -> bool:
    """Even under its own signature, which whoever drives the session has."""
    session = begun(kernel)
    primes = context().primes
    blob, rest = rns.pack(np.full((len(primes), N), 3, np.uint64), primes), ["00" * 32]
    text = partial(committed_text, "commitment", "keys", SEED)
    told = digest_of([hashlib.sha256(blob).hexdigest(), *rest])
    said = SignedValue.by(KEYS["a"], text, "a", told)
    return refuses(lambda: add(session, "a", blob=blob, said=said))


def the_joint_key_is_whole(kernel: Any) -> bool:
    session = begun(kernel)
    own = session.public_share()
    add(session, "b", "c", "a", own=own)
    early = session.joint_key is None and refuses(session.public_key)
    add(session, "d")
    primes = context().primes
    expected = rns.add(own, np.full((len(primes), N), 3, np.uint64), primes)
    return early and bool(np.array_equal(session.joint_key, expected))


def other_labels_are_not_decrypted(kernel: Any) -> bool:
    """By names of its own a verifier would have as many decryptions as it likes."""
    session = begun(kernel)
    names = ("decrypt/1", "refresh/0/0", "cover-decrypt", "", "decrypt ")
    return all(fails(lambda n=n: session.decryption_share(c1(2), n)) for n in names)  # type: ignore[misc]


def refreshes_are_the_sheets(kernel: Any) -> bool:
    session = begun(kernel)
    names = ("refresh/0/2", "refresh/1/1", "refresh/2/0", "refresh/00/0", "cover-refresh/0/0", "r")
    asked = (partial(refresh_shares, session), partial(trace_shares, session))
    return all(
        fails(lambda f=f, n=n: f([(c1(REFRESH_TOWERS), n, None)]))  # type: ignore[misc]
        for n in names
        for f in asked
    )


def rotations_are_the_sheets(kernel: Any) -> bool:
    return fails(lambda: begun(kernel).rotation_share(3))


def there_is_one_key_share(kernel: Any) -> bool:
    """And none is made after the end."""
    over = session_of(kernel)
    over.erase()
    return fails(lambda: begun(kernel).begin({})) and fails(lambda: over.begin({}))


def unsigned(seeds: Any) -> bytes:
    raise PolicyError("not everybody has signed the sheets of this run")


def no_share_before_all_have_signed(kernel: Any) -> bool:
    """Nor under a seed that whoever drives the session has chosen."""
    session = session_of(kernel, joint_seed=unsigned)
    early = fails(lambda: session.begin({"a": "00" * 32}))
    return early and not session.begun


def nothing_leaves_an_ended_session(kernel: Any) -> bool:
    session = begun(kernel)
    session.erase()
    return fails(lambda: refresh_shares(session, [(c1(REFRESH_TOWERS), "refresh/0/0", None)]))


TRUE = "lambda: True"
FLOORS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "shares as committed": (
        "if said is None or said.value != told:", "if False:", shares_are_as_committed,
    ),
    "signed commitments": (
        'check_signed("commitment', '(lambda *_: None)("commitment', commitments_are_signed,
    ),
    "one share each": ("or {*names} & self._added or len({*names}) != len(names)", "",
                       each_has_one_share),
    "own share": ("if name == self._name and own != self._own:", "if False:",
                  the_own_share_is_its_own),
    "whole joint key": (
        "if self._added == {*dict(self._sheet.roster)} else None", "", the_joint_key_is_whole,
    ),
    "own name and key": (
        "lambda: roster.get(name) == key", TRUE,
        lambda k: refused(k, roster=(("a", ROSTER[1][1]), ("b", ROSTER[0][1]), *ROSTER[2:])),
    ),
    "one party twice": (
        "lambda: len({*roster.values()}) == len(roster) == parties", TRUE,
        lambda k: refused(k, roster=(*ROSTER[:3], ("d", ROSTER[2][1]))),
    ),
    "least members": (
        "lambda: parties >= terms.colluders + others", TRUE,
        lambda k: refused(k, {"colluders": 2}, roster=ROSTER[:2]),
    ),
    "a toy ring": (
        "lambda: params.security_bits > 0 or terms.insecure", TRUE,
        lambda k: refused(k, {"insecure": False}),
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
        "lambda: all(least <= e < inf for e in errors)", TRUE,
        lambda k: refused(k, error=0.9 * rounding_std(TOY, 4)) and refused(k, shown_error=0.0)
        and refused(k, error=float("nan")),
    ),
    "decryptions": (
        "lambda: sheet.decryptions >= self.decryptions", TRUE,
        lambda k: refused(k, decryptions=0),
    ),
    "one decryption": ("if self._answered(label) != DECRYPT:", "if False:",
                       other_labels_are_not_decrypted),
    "refreshes of the sheet": ("if position >= due", "if False", refreshes_are_the_sheets),
    "rotations of the sheet": ("or index not in self._sheet.rotations", "",
                               rotations_are_the_sheets),
    "one key share": ("        if self.begun or self._is_over:\n            raise",
                      "        if False:\n            raise", there_is_one_key_share),
    "none after the end": ("if self.begun or self._is_over:", "if self.begun:",
                           there_is_one_key_share),
    "signed sheets": ("self.make(self._joint_seed(seeds))", "self.make(bytes(32))",
                      no_share_before_all_have_signed),
    "the end": ("        super().erase()\n", "", nothing_leaves_an_ended_session),
}  # fmt: skip


def covered(kernel: Any, **changes: Any) -> Any:
    fields = {name: getattr(SHEET, name) for name in KeysSheet.__dataclass_fields__}
    sheet = CoveredSheet(**(fields | {"cover": 3, "decryptions": 2} | changes))
    return kernel.CoveredKeys(sheet, "a", rows_of(), KEYS["a"])


def repetitions_are_of_the_missing(kernel: Any) -> bool:
    session = covered(kernel)
    session.begin({})
    session.decryption_share(c1(2), "decrypt")
    return fails(lambda: session.decryption_share(c1(2), "cover-decrypt"))


COVER_FLOORS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "cover by colluders": (
        "lambda: terms.colluders < self._sheet.cover <= most", TRUE,
        lambda k: fails(lambda: covered(k, cover=1)) and fails(lambda: covered(k, cover=5)),
    ),
    "two decryptions": (
        "    decryptions = 2\n", "", lambda k: fails(lambda: covered(k, decryptions=1)),
    ),
    "repetitions": (" if self.missing else label", "", repetitions_are_of_the_missing),
    "the end": (
        "            self._cover.erase()\n", "            pass\n",
        lambda k: nothing_is_held_after_the_end(k),
    ),
}  # fmt: skip


def nothing_is_held_after_the_end(kernel: Any) -> bool:
    session = covered(kernel)
    session.begin({})
    session.erase()
    return fails(session.cover_key)


@pytest.mark.parametrize("floor", COVER_FLOORS)
def test_a_floor_of_cover_holds_and_its_mutant_is_seen(floor: str) -> None:
    old, new, holds = COVER_FLOORS[floor]
    assert holds(covered_keys)
    assert not holds(mutant(covered_keys, old, new))


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_holds_and_its_mutant_is_seen(floor: str) -> None:
    old, new, holds = FLOORS[floor]
    assert holds(key_session)
    assert not holds(mutant(key_session, old, new))


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
    assert len({sheet_digest(sheet) for sheet in sheets}) == len(sheets)


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
        ask = (
            partial(refresh_shares, session)
            if step == "refresh"
            else partial(trace_shares, session)
        )
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
        "begin": lambda: session.begin({}),
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
