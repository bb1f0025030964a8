"""A session of encrypted rows under a verifier that asks for anything.

Each floor has a mutant: the same file with one line changed, under which its check fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.kernel import EVERY
from parties.kernel.channel import Codec
from parties.kernel.private import Private, Terms
from parties.kernel.rows import RowsSheet, packed
from parties.kernel.rows import session as rows_session
from parties.kernel.rows.session import RowsSession
from parties.kernel.sheet import cost, digest_of
from protocols.errors import CohortError, PolicyError
from protocols.privacy.laws.seeded import SeededRandomness
from tests.kernel.mutants import mutant

KEYS = {name: Ed25519PrivateKey.generate() for name in ("a", "b", "c", "d")}
ROSTER = tuple((name, key.public_key().public_bytes_raw().hex()) for name, key in KEYS.items())
ROWS, D, SLOTS, ROUNDS, COLLUDERS = 5, 3, 32, 2, 1
X = np.linspace(-0.5, 0.5, ROWS * D).reshape(ROWS, D)
Y = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
SHEET = RowsSheet(
    session="rows",
    roster=ROSTER,
    rows=(ROWS, 7, 7, 7),
    kind="rows",
    num_features=D,
    num_outputs=0,
    rounds=ROUNDS,
    bound=1.0,
    scale=0.25,
    side=2.0,
    start=0.5,
    moves=1.0,
    law="gaussian",
    honest=3,
    bits=33,
    units=1 << 31,
)
BOOKED = cost(SHEET)
SCHEMA = SimpleNamespace(norm_bound=1.0, entry_bound=0.5)
ADDED = 0.5 * D * 0.5  # |x_k| sum_j |x_j| of a row at most
PLACES = np.concatenate([np.arange(1, 1 + ROWS * D), np.zeros(SLOTS - ROWS * D)]).astype(np.int32)
SIDE = np.zeros(SLOTS, np.int32)
SIDE[: ROUNDS * D] = np.arange(1 + ROWS * D, 1 + ROWS * D + ROUNDS * D)
TRUE = "lambda: True"


class Party:
    """One party: its boundary, what it notes, and keys that note what is encrypted."""

    def __init__(
        self, sheet: Any = SHEET, kernel: Any = rows_session, x: Any = X, y: Any = Y, **terms: Any
    ) -> None:
        self.log: list[Any] = []
        self.kernel = kernel
        private = Private(SimpleNamespace(spend=self.spend))
        agreed: dict[str, Any] = {
            "exact": False,
            "colluders": COLLUDERS,
            "booked": ("gaussian", BOOKED),
        }
        private.terms = Terms(spend=self.spend, keys=lambda: self, **(agreed | terms))
        own = {"rows": len(x), "num_features": D, "schema": SCHEMA}
        rows = SimpleNamespace(x=x, y=y, weight=np.ones(len(x)), **own)
        self.private, self.context = private, SimpleNamespace(num_slots=SLOTS)
        with private:
            self.session: RowsSession = kernel.RowsSession(
                sheet, "a", private.keep(rows), SeededRandomness(1), KEYS["a"]
            )

    def spend(self) -> None:
        self.log.append("spent")

    def public_key(self) -> str:
        """Of the joint key."""
        return "joint"

    def encrypt(self, keys: Any, public_key: Any, slots: Any, label: str) -> Any:
        """As `rows.session.encrypt`."""
        self.log.append((public_key, label, slots))
        return np.zeros((2, 2), np.uint64)

    def contribute(self, *places: Any) -> list[Any]:
        """What is encrypted."""
        with self.private, patch.object(self.kernel, "encrypt", self.encrypt):
            self.session.contribute(list(places))
        return [each[2] for each in self.log if isinstance(each, tuple)]


def refused(kernel: Any, terms: dict[str, Any] | None = None, **changes: Any) -> bool:
    """Whether a sheet with this difference is, before a row is looked at."""
    try:
        Party(replace(SHEET, **changes), kernel, **(terms or {}))
    except CohortError:
        return True
    except Exception:
        return False
    return False


def fails(party: Party, *places: Any) -> bool:
    """Whether nothing is encrypted of such places."""
    before = len(party.log)
    try:
        party.contribute(*places)
    except CohortError:
        return len(party.log) == before
    except Exception:
        return False
    return False


def changed(array: Any, **at: int) -> Any:
    found = array.copy()
    for place, value in at.items():
        found[int(place[1:])] = value
    return found


def test_what_is_encrypted() -> None:
    """Rows times their scale, and sums with the noise of the sheet, where the places say."""
    rows, side = Party().contribute(PLACES, SIDE)
    noise = packed.draw_noise(SHEET, packed.noise_size(SHEET), SeededRandomness(1))
    np.testing.assert_array_equal(rows[: ROWS * D].reshape(ROWS, D), 0.25 * X)
    expected = (X.T @ (0.5 - Y) + sum(SHEET.rows) * noise) / 2.0
    np.testing.assert_array_equal(side[: ROUNDS * D].reshape(ROUNDS, D), expected)
    assert not rows[ROWS * D :].any() and np.std(noise) > 0.1


def it_is_once(kernel: Any) -> bool:
    """A second time rows would have other noise."""
    party = Party(kernel=kernel)
    party.contribute(PLACES, SIDE)
    return fails(party, PLACES, SIDE)


def it_is_spent_first(kernel: Any) -> bool:
    party = Party(kernel=kernel)
    party.contribute(PLACES, SIDE)
    return bool(party.log[0] == "spent")


def nothing_after_the_end(kernel: Any) -> bool:
    party = Party(kernel=kernel)
    party.session.erase()
    return fails(party, PLACES, SIDE)


def a_number_has_one_place(kernel: Any) -> bool:
    """A row that stands twice counts twice; one that is left out makes others its hiding place."""
    bad = [
        (changed(PLACES, _20=1), SIDE),
        (changed(PLACES, _0=2), SIDE),
        (changed(PLACES, _0=0), SIDE),
        (PLACES, changed(SIDE, _0=0)),
        (PLACES, changed(SIDE, _30=1)),
        (PLACES, PLACES),
        (PLACES,),
        (),
    ]
    return all(fails(Party(kernel=kernel), *each) for each in bad)


def places_hold_numbers(kernel: Any) -> bool:
    bad = [changed(SIDE, _31=n) for n in (-1, 1 + ROWS * D + ROUNDS * D, 1 << 30)]
    return all(fails(Party(kernel=kernel), PLACES, each) for each in bad)


def places_are_of_this_ring(kernel: Any) -> bool:
    bad = [SIDE[:16], SIDE.astype(np.int64), SIDE.astype(float), SIDE.reshape(2, 16)]
    return all(fails(Party(kernel=kernel), PLACES, each) for each in bad)


def rows_are_within_the_bound(kernel: Any) -> bool:
    long, nan = X.copy(), X.copy()
    long[2] *= 40
    nan[2, 0] = np.nan
    found = [fails_late(kernel, x=x) for x in (long, nan)]
    return all(found)


def fails_late(kernel: Any, **rows: Any) -> bool:
    party = Party(kernel=kernel, **rows)
    try:
        party.contribute(PLACES, SIDE)
    except Exception:
        return not any(isinstance(each, tuple) for each in party.log)
    return False


UNAGREED = {"law": "", "units": 0, "bits": 0, "moves": 0.0, "honest": 1}
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
        "lambda: parties >= terms.colluders + others", TRUE,
        lambda k: refused(
            k, {"exact": True, "colluders": 2}, roster=ROSTER[:2], rows=(ROWS, 7), law=""
        ),
    ),
    "own rows": (
        "len(sheet.rows) == len(sheet.roster) and sheet.rows[place] == rows.rows", "True",
        lambda k: refused(k, rows=(6, 7, 7, 7)),
    ),
    "others' rows": (
        "lambda: all(type(n) is int and n > 0 for n in sheet.rows)", TRUE,
        lambda k: refused(k, {"booked": None}, rows=(ROWS, 7, -2, 7)),
    ),
    "features": (
        "lambda: sheet.num_features == rows.num_features", TRUE,
        lambda k: refused(k, num_features=4),
    ),
    "rounds": (
        "lambda: type(sheet.rounds) is int and sheet.rounds > 0", TRUE,
        lambda k: refused(k, rounds=0),
    ),
    "scales": (
        "all(map(fits, sizes)) and sheet.scale > 0", "True",
        lambda k: refused(k, scale=2e40) and refused(k, side=0.0) and refused(k, start=1e-41),
    ),
    "numbers": (
        "0 < sheet.most < math.inf and all(map(math.isfinite, sheet.curvature))", "True",
        lambda k: refused(k, most=float("nan")),
    ),
    "a whole curvature": (
        "lambda: len(sheet.curvature) in (0, 3)", TRUE,
        lambda k: refused(k, {"exact": True}, **UNAGREED, curvature=(1.0,)),
    ),
    "a curvature in its range": (
        "lambda: in_range(sheet.curvature, added())", TRUE,
        lambda k: all(
            refused(k, {"exact": True}, **UNAGREED, curvature=each)
            for each in (
                (1.0, 0.1 + 0.99 * ADDED, 0.1), (2.0, 0.1 + ADDED, 0.1), (-1.0, 1.0, 0.1),
                (1.0, 2.0, -0.1), (1.0, -1.0, -3.0), (0.0, 1.0, 0.1),
            )
        ),
    ),
    "sums of products": (
        "lambda: sheet.most * LEEWAY >= 2 * added()", TRUE,
        lambda k: refused(
            k, {"exact": True}, **UNAGREED, kind="gram", num_outputs=1, most=1.99 * ADDED
        ),
    ),
    "exact rows": (
        "lambda: bool(sheet.law) or terms.exact", TRUE, lambda k: refused(k, **UNAGREED),
    ),
    "law as booked": (
        'lambda: (booked or (sheet.law,))[0] == sheet.law == "gaussian"', TRUE,
        lambda k: refused(k, {"booked": ("laplace", BOOKED)}),
    ),
    "units": (
        "lambda: type(sheet.units) is int and sheet.units >= LEAST_UNITS", TRUE,
        lambda k: refused(k, {"booked": None}, units=4),
    ),
    "honest shares": (
        "lambda: 1 <= sheet.honest <= most", TRUE,
        lambda k: refused(k, honest=4),
    ),
    "curvatures have noise": (
        "lambda: not (sheet.curvature or sheet.row_sums)", TRUE,
        lambda k: refused(k, curvature=(1.0, 2.0, 0.5)),
    ),
    "moves": (
        "lambda: sheet.moves * SLACK >= least()", TRUE,
        lambda k: refused(k, moves=0.4),
    ),
    "noise as booked": (
        "lambda: cost(sheet) <= booked[1] * SLACK", TRUE,
        lambda k: refused(k, units=1 << 30),
    ),
    "once": ("if self.is_over:", "if False:", it_is_once),
    "over at once": (
        "        self.is_over = True\n        self._terms", "        self._terms", it_is_once,
    ),
    "spent first": ("self._terms.spend()", "pass", it_is_spent_first),
    "the end": ('"""Nothing leaves any more."""\n        self.is_over = True',
                '"""Nothing leaves any more."""', nothing_after_the_end),
    "one slot each": (
        "if not ((counts[1:once] == 1).all() and (counts[once:] >= 1).all()):", "if False:",
        a_number_has_one_place,
    ),
    "places of numbers": (
        "if not all(int(p.min()) >= 0 and int(p.max()) < total for p in places):", "if False:",
        places_hold_numbers,
    ),
    "places of slots": (
        "if not all(p.shape == (num_slots,) and p.dtype == np.int32 for p in places):",
        "if False:", places_are_of_this_ring,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["else", "", "parties.kernel.rows.packed"])
def test_a_kind_that_is_none_is_refused(kind: str) -> None:
    assert refused(rows_session, kind=kind)


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_holds_and_its_mutant_is_seen(floor: str) -> None:
    old, new, holds = FLOORS[floor]
    assert holds(rows_session)
    assert not holds(mutant(rows_session, old, new))


def test_rows_are_held_to_the_sheet() -> None:
    """Or nothing is encrypted at all."""
    assert rows_are_within_the_bound(rows_session)
    assert fails_late(rows_session, y=Y + 1)


LONGEST = np.array([[0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
ROTATED = np.linalg.qr(np.arange(9.0).reshape(3, 3) + np.eye(3))[0]
MATRICES = [(), *(tuple(map(tuple, c * ROTATED)) for c in (0.5, 1.0, 30.0))]
EXACT = [
    {"kind": "rows"},
    {"kind": "rows", "signed": True},
    {"kind": "lffr", "num_outputs": 2},
    {"kind": "gram", "num_outputs": 2},
    {"kind": "gram", "num_outputs": 2, "gamma": 0.9},
]


@pytest.mark.parametrize("constant", [0.25, 1.0])
@pytest.mark.parametrize(
    ("kind", "matrix"),
    [(k, m) for k in EXACT for m in (MATRICES if k["kind"] != "lffr" else MATRICES[:1])],
)
def test_no_exact_sheet_that_is_taken_refuses_a_row(
    kind: dict[str, Any], matrix: Any, constant: float
) -> None:
    """The narrowest sheet that is taken, and rows at the ends of what their schema allows."""
    outputs = max(1, kind.get("num_outputs", 0))
    taken = []
    for width in np.linspace(0.05, 4.0, 80):
        sheet = replace(SHEET, **UNAGREED, **kind, matrix=matrix, most=2 * width, bound=1.0)
        if kind["kind"] != "gram":
            sheet = replace(sheet, curvature=(constant, 0.1 + constant * width, 0.1))
        else:
            sheet = replace(sheet, bound=40.0)
        for row in (*LONGEST, *(LONGEST @ ROTATED)[:1].clip(-0.5, 0.5)):
            x, y = np.tile(row, (ROWS, 1)), np.ones((ROWS, outputs))
            try:
                party = Party(sheet, x=x, y=y, exact=True)
            except PolicyError:
                continue
            sizes = packed.numbers(sheet, EVERY).shapes(sheet, ROWS)
            total = 1 + sum(int(np.prod(size)) for size in sizes)
            places = np.zeros((-(-total // SLOTS), SLOTS), np.int32)
            places.ravel()[: total - 1] = np.arange(1, total)
            party.contribute(*places)
            taken.append(width)
    assert taken


WRONG = (None, "", -1, 0, 2.5, float("nan"), float("inf"), (), (1,), {}, True, [1], b"")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([f.name for f in fields(RowsSheet)]), st.sampled_from(WRONG))
def test_no_wrong_field_leaves_a_row_without_noise(name: str, value: Any) -> None:
    """A sheet with one wrong value is refused, or what is encrypted has the noise it is due."""
    try:
        sheet = replace(SHEET, **{name: value})
        party = Party(sheet)
        total = 1 + sum(int(np.prod(s)) for s in packed.numbers(sheet, EVERY).shapes(sheet, ROWS))
        places = np.zeros((-(-total // SLOTS), SLOTS), np.int32)
        places.ravel()[: total - 1] = np.arange(1, total)
        found = np.concatenate(party.contribute(*places))
    except (CohortError, TypeError, ValueError, AttributeError, OverflowError, LookupError):
        return
    except Exception as error:
        assert "Hidden" in type(error).__name__, error
        return
    side = found[ROWS * D : total - 1]
    assert cost(sheet) <= BOOKED * (1 + 1e-9)
    assert np.std(side * sheet.side) > 0.5 * sum(sheet.rows) * SHEET.units * 2.0**-SHEET.bits / 3


def test_a_sheet_passes_the_channel() -> None:
    codec = Codec()
    head, blobs = codec.encode(SHEET)
    again = codec.decode(head, [bytes(blob) for blob in blobs])
    assert again == SHEET and digest_of(again) == digest_of(SHEET)
