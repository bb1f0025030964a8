"""A session of secure sums under a verifier that asks for anything, in any order.

Each floor has a mutant: the same file with one line changed, under which its check fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.kernel.integers.exact import Exact
from parties.kernel.private import HiddenError, Private, Terms
from parties.kernel.sheet import digest_of
from parties.kernel.sums import SumsRound, SumsSheet, row_function
from parties.kernel.sums import session as sums_session
from parties.kernel.sums.gradients import Gradients
from parties.kernel.sums.integer_sums import PartSum
from parties.kernel.sums.row_functions import OwnCode
from parties.kernel.sums.session import SumsSession
from parties.kernel.sums.tables import Judged
from protocols import aggregate
from protocols.aggregate.choice import choose
from protocols.errors import CohortError, MessageError, ParameterError, PolicyError
from protocols.privacy.laws.seeded import SeededRandomness
from tests.kernel.mutants import mutant

LENGTH, BOUND, COLLUDERS, ROUNDS = 2, 0.125, 1, 3
KEYS = {name: Ed25519PrivateKey.generate() for name in ("a", "b", "c", "d")}
ROSTER = tuple((name, key.public_key().public_bytes_raw().hex()) for name, key in KEYS.items())
CIPHER = choose(parties=4, largest_sum=1e5, precision=2.0**-20)
ASKED = SumsRound(query="gradient", bits=30, units=1 << 31)
FUNCTION = Gradients(loss="logistic", clip=BOUND).fields()
SHEET = SumsSheet(
    session="s",
    roster=ROSTER,
    ring_dim=CIPHER.ring_dim,
    primes=CIPHER.primes,
    scale_bits=CIPHER.scale_bits,
    length=LENGTH,
    row_function=FUNCTION,
    weights=(1.0,) * 4,
    rounds=(ASKED,) * ROUNDS,
    law="gaussian",
    honest=3,
)
BOOKED = SHEET.cost()
X = np.array([[0.3, -0.7], [0.01, 0.02], [5.0, -1.0]])


class Watched:
    """One party: its boundary, what it notes, and a secret that notes what it encrypts."""

    def __init__(self, sheet: Any = SHEET, kernel: Any = sums_session, **terms: Any) -> None:
        self.log: list[Any] = []
        self.private = Private(self)
        agreed: dict[str, Any] = {
            "exact": False,
            "colluders": COLLUDERS,
            "booked": ("gaussian", BOOKED),
            "joint_seed": lambda seeds: bytes(32),
        }
        self.private.terms = Terms(spend=self.spend, **(agreed | terms))
        self.bound, self.sheet = BOUND, sheet
        rows: Any = self.private.keep(SimpleNamespace(rows=len(X), num_features=LENGTH))
        with self.private:
            self.session: SumsSession = kernel.SumsSession(
                sheet, "a", rows, SeededRandomness(1), KEYS["a"], lambda *_: self
            )

    def spend(self) -> None:
        self.log.append("spent")

    def exact(self, query: str, t: int, point: Any) -> Exact:
        """Rows, each clipped."""
        self.log.append(("read", t))
        total = PartSum(Fraction(self.bound), 2, LENGTH, len(X))
        total.add(X)
        return total.exact

    def begin(self) -> Watched:
        """The secret's own rules are tested with it; here it says what it was given."""
        self.session.begin({})
        share: Any = self.session._share
        encrypt = share.encrypt

        def noting(t: int, values: Any) -> Any:
            found = encrypt(t, values)
            self.log.append(("left", t, values))
            return found

        share.encrypt = noting
        return self

    def round(self, t: Any = 0, point: Any = None) -> Any:
        """As a party asks, inside the boundary."""
        with self.private:
            return self.session.round(t, np.zeros(LENGTH) if point is None else point)

    def kinds(self, kind: str) -> list[Any]:
        """What was noted."""
        return [each for each in self.log if each[0] == kind]


def refused(kernel: Any, terms: dict[str, Any] | None = None, **changes: Any) -> bool:
    """Whether a sheet with this difference is, before rows are looked at."""
    try:
        Watched(replace(SHEET, **changes), kernel, **(terms or {}))
    except (PolicyError, ParameterError):
        return True
    except Exception:
        return False
    return False


def each_round(**changes: Any) -> tuple[SumsRound, ...]:
    return tuple(replace(asked, **changes) for asked in SHEET.rounds)


def fails(error: type[Exception], ask: Callable[[], Any]) -> bool:
    """Whether it is refused with this error."""
    try:
        ask()
    except error:
        return True
    except Exception:
        return False
    return False


def rows_answer_a_round_once(kernel: Any) -> bool:
    party = Watched(kernel=kernel).begin()
    for t in (1, 1, 0, 2, 2):
        with suppress(Exception):
            party.round(t)
    return [t for _, t in party.kinds("read")] == [1, 2]


def a_failed_round_is_over(kernel: Any) -> bool:
    party = Watched(kernel=kernel).begin()
    party.bound = 2 * BOUND
    for _ in range(2):
        with suppress(Exception):
            party.round(0)
    return len(party.kinds("read")) == 1 and not party.kinds("left")


def the_account_is_spent_first(kernel: Any) -> bool:
    party = Watched(kernel=kernel).begin()
    party.round()
    return party.log[:2] == ["spent", ("read", 0)]


def no_row_is_longer_than_the_sheet_says(kernel: Any) -> bool:
    party = Watched(kernel=kernel).begin()
    party.bound = 1.001 * BOUND
    return fails(PolicyError, party.round) or not party.kinds("left")


def own_code_holds_rows_to_a_bound(kernel: Any) -> bool:
    party = Watched(replace(SHEET, row_function=OwnCode(clip=BOUND).fields()), kernel).begin()
    exact = party.exact
    party.round(0)
    party.exact = lambda *asked: replace(exact(*asked), most=None)  # type: ignore[method-assign]
    with suppress(PolicyError, HiddenError):
        party.round(1)
    return len(party.kinds("left")) == 1


def tables_of_one_are_agreed_to(kernel: Any) -> bool:
    """Its own, and those of others that leave it a sum with those alone whom it fears."""
    function = Judged(
        model="logistic", weights=((1.0, -1.0),), bins=2, width=1.0, centre=0.0, exact=True,
        row_norm=1.0,
    )  # fmt: skip

    def is_refused(sites: tuple[str, ...], alone: bool = False) -> bool:
        asked = replace(function, sites=sites)
        fields, length = asked.fields(), asked.length(LENGTH)
        terms = {"exact": True, "alone": alone}
        return refused(kernel, terms, row_function=fields, length=length, **UNAGREED)

    asked = {sites: is_refused(sites) for sites in ((), ("b",), ("b", "c"), ("a",), ("b", "a"))}
    return (
        [*asked.values()] == [False] * 2 + [True] * 3
        and is_refused(("b", "c", "d"))
        and not is_refused(("a",), alone=True)
    )


def points_are_of_this_run(kernel: Any) -> bool:
    party = Watched(kernel=kernel).begin()
    bad = [np.full(LENGTH, np.nan), np.full(LENGTH, np.inf), np.zeros(LENGTH + 1), np.zeros((1, 2))]
    found = [fails(MessageError, lambda p=p: party.round(0, p)) for p in bad]  # type: ignore[misc]
    return all(found) and not party.kinds("read")


def there_is_one_secret(kernel: Any) -> bool:
    party = Watched(kernel=kernel).begin()
    return fails(PolicyError, lambda: party.session.begin({}))


def unsigned(seeds: Any) -> bytes:
    raise PolicyError("not everybody has signed the sheets of this run")


def no_secret_before_all_have_signed(kernel: Any) -> bool:
    """Nor under a seed that whoever drives the session has chosen."""
    party = Watched(kernel=kernel, joint_seed=unsigned)
    early = fails(PolicyError, lambda: party.session.begin({"a": "00" * 32}))
    return early and not party.session.begun


def nothing_leaves_an_ended_session(kernel: Any) -> bool:
    party = Watched(kernel=kernel).begin()
    party.session.erase()
    return fails(PolicyError, party.round) and not party.kinds("read")


def noise_is_there(kernel: Any) -> bool:
    """At the scale of the sheet: 3 rounds of 2 values, chi-square of 6 within [0.3, 25]."""
    party = Watched(kernel=kernel).begin()
    clear = party.exact("", 0, None).on(CIPHER.scale_bits)
    for t in range(ROUNDS):
        party.round(t)
    sigma = math.ldexp(ASKED.units, CIPHER.scale_bits - ASKED.bits)
    away = np.concatenate([values - clear for *_, values in party.kinds("left")]) / sigma
    return 0.3 < float((away.astype(float) ** 2).sum()) < 25


UNAGREED: dict[str, Any] = {"law": "", "rounds": each_round(units=0)}
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
        "lambda: parties >= terms.colluders + others", TRUE,
        lambda k: refused(k, {"booked": None}, roster=ROSTER[:2], weights=(1.0, 1.0), honest=1),
    ),
    "exact sums": (
        "lambda: bool(sheet.law) or terms.exact", TRUE, lambda k: refused(k, **UNAGREED),
    ),
    "law": (
        "lambda: sheet.law in NORMS and (booked or (sheet.law,))[0] == sheet.law", TRUE,
        lambda k: refused(k, {"booked": ("gaussian", 1e9)}, law="laplace", norm=1),
    ),
    "some noise": (
        "lambda: all(type(r.units) is int and r.units >= least for r in rounds)", TRUE,
        lambda k: refused(k, rounds=each_round(units=0)),
    ),
    "shares of colluders": (
        "lambda: 1 <= sheet.honest <= most", TRUE,
        lambda k: refused(k, honest=4),
    ),
    "weights": (
        "lambda: len(weights) == parties and all(0 < w < math.inf for w in weights)", TRUE,
        lambda k: refused(k, weights=(-1.0,) * 4),
    ),
    "weights alike": (
        "alike or (same and (bool(sheet.law) or terms.alone))", "True",
        lambda k: refused(k, weights=(1.0, 1e-9, 1e-9, 1e-9)),
    ),
    "weights apart without noise": (
        "(bool(sheet.law) or terms.alone)", "True",
        lambda k: refused(
            k, {"exact": True, "alone": False}, **UNAGREED,
            weights=(0.25 / len(X), 0.25, 0.125, 0.0625),
        ),
    ),
    "room": (
        "largest <= params.max_value * SLACK", "True",
        lambda k: refused(k, scale_bits=CIPHER.scale_bits + 14),
    ),
    "a fine unit": (
        "not sheet.law or least >= COARSEST", "True",
        lambda k: refused(k, scale_bits=0),
    ),
    "norm of the law": (
        "lambda: sheet.norm == NORMS.get(sheet.law, sheet.norm) and sheet.norm in (1, 2)", TRUE,
        lambda k: refused(k, norm=1),
    ),
    "noise as booked": (
        "lambda: booked is None or sheet.cost() <= booked[1] * SLACK", TRUE,
        lambda k: refused(k, rounds=(*SHEET.rounds, ASKED))
        and refused(k, rounds=each_round(units=ASKED.units - (1 << 20)))
        and refused(k, weights=(*SHEET.weights[1:], 1.01))
        and refused(k, row_function=FUNCTION | {"clip": 1.01 * BOUND}),
    ),
    "a round once": ("self._next <= t", "0 <= t", rows_answer_a_round_once),
    "a failed round": ("self._next = t + 1", "pass", a_failed_round_is_over),
    "spent first": ("        self._terms.spend()\n", "", the_account_is_spent_first),
    "norm of rows": (
        "if most is not None and", "if False and", no_row_is_longer_than_the_sheet_says,
    ),
    "bound of own code": (
        "if most is None and self._function.kind == OwnCode.kind:", "if False:",
        own_code_holds_rows_to_a_bound,
    ),
    "its own table": ("self._terms.alone or not alone", "True", tables_of_one_are_agreed_to),
    "the length of a sum": (
        "length in (None, sheet.length)", "True",
        lambda k: refused(k, {"exact": True}, length=LENGTH + 1, **UNAGREED),
    ),
    "finite point": (" or not np.isfinite(point).all()", "", points_are_of_this_run),
    "length of a point": ("point.shape != (self._sheet.length,) or", "", points_are_of_this_run),
    "one secret": ("if self._share is not None or self._is_over:", "if False:",
                   there_is_one_secret),
    "signed sheets": (
        "seed = self._terms.joint_seed(seeds)", "seed = bytes(32)",
        no_secret_before_all_have_signed,
    ),
    "the end": (
        "self._next, self._is_over = len(self._sheet.rounds), True\n", "pass\n",
        nothing_leaves_an_ended_session,
    ),
    "noise": ("exact.on(own.bits) + noise", "exact.on(own.bits)", noise_is_there),
}  # fmt: skip


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_holds_and_its_mutant_is_seen(floor: str) -> None:
    old, new, holds = FLOORS[floor]
    assert holds(sums_session)
    assert not holds(mutant(sums_session, old, new))


def test_sites_leave_a_sum_of_two_beside_those_who_collude() -> None:
    def holds(module: Any) -> bool:
        asked = (("", 0), ("b", 0), ("bc", 0), ("b", 1), ("", 2))
        found = [{*module.of_sites(sites, "abc", feared)} for sites, feared in asked]
        return found == [set(), {"b"}, {*"abc"}, {*"abc"}, set()]

    assert holds(row_function)
    assert not holds(mutant(row_function, "colluders + 2", "2"))
    assert not holds(mutant(row_function, "left if sites and", "left if"))


def test_rings_are_from_the_kernels_own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """And have room for all parties of the roster, whatever the sheet says."""
    (large,) = (c for c in [choose(parties=4, largest_sum=1e15, precision=1e-9)])
    assert large.ring_dim > CIPHER.ring_dim
    weak = {"ring_dim": 2048, "primes": large.primes}
    assert refused(sums_session, **weak) and refused(sums_session, primes=(97,), ring_dim=16)
    monkeypatch.setitem(aggregate.MAX_LOG_Q_128, 2048, 200)
    assert not refused(sums_session, **weak)
    assert Watched().session._params.parties == len(ROSTER)


def test_a_sheet_has_one_digest() -> None:
    assert digest_of(SHEET) == digest_of(replace(SHEET))
    changed = [replace(SHEET, **{f.name: f"{f.name}?"}) for f in fields(SHEET)]
    rounds = [replace(SHEET, rounds=(replace(ASKED, **{f.name: "?"}),)) for f in fields(ASKED)]
    assert len({digest_of(sheet) for sheet in (SHEET, *changed, *rounds)}) == 1 + len(
        changed
    ) + len(rounds)


# -- a hostile verifier ----------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-3, 5), st.sampled_from([1 << 20, 1 << 31, 1 << 40, 1 << 70]),
    st.sampled_from([0.0, BOUND, 2 * BOUND, 1e-300, 1e300, math.inf, math.nan, "0", None]),
)  # fmt: skip
CHANGED_ROUNDS = st.lists(
    st.fixed_dictionaries({}, optional={f.name: NUMBERS for f in fields(ASKED)}), max_size=6
)
SHEETS = st.fixed_dictionaries(
    {},
    optional={
        "honest": NUMBERS,
        "length": st.one_of(st.just(LENGTH), NUMBERS),
        "scale_bits": NUMBERS,
        "row_function": st.one_of(
            st.sampled_from([FUNCTION, {"kind": "dual"}, {"kind": "x"}, {}]),
            st.builds(
                lambda key, n: FUNCTION | {key: n}, st.sampled_from([*FUNCTION, "x"]), NUMBERS
            ),
        ),
        "weights": st.lists(NUMBERS, max_size=5).map(tuple),
        "norm": NUMBERS,
        "law": st.sampled_from(["gaussian", "", "x"]),
        "roster": st.permutations(ROSTER).flatmap(
            lambda r: st.integers(0, 4).map(lambda n: tuple(r)[:n])
        ),
        "rounds": CHANGED_ROUNDS.map(lambda each: tuple(replace(ASKED, **c) for c in each)),
    },
)
POINTS = st.one_of(
    st.just(np.zeros(LENGTH)),
    st.lists(st.floats(width=64), max_size=4).map(lambda v: np.array(v, np.float64)),
    st.sampled_from([None, "x", np.zeros((1, LENGTH)), np.array(["a", "b"])]),
)
ASKING = st.lists(
    st.one_of(
        st.tuples(st.just("round"), NUMBERS, POINTS),
        st.tuples(st.just("round"), st.integers(0, ROUNDS), st.just(np.zeros(LENGTH))),
        st.tuples(st.just("begin"), st.just({})),
        st.tuples(st.just("masked_secret"), st.just({})),
        st.tuples(st.just("mask_key")),
        st.tuples(st.just("erase")),
    ),
    max_size=12,
)


def apart(released: int, sheet: SumsSheet) -> float:
    """mu^2 of so many Gaussian rounds against those that this owner fears, by the rows' bound."""
    shares = len(sheet.roster) - COLLUDERS
    scales = [math.ldexp(r.units, -r.bits) * math.sqrt(shares) for r in sheet.rounds]
    return sum((2 * BOUND / s) ** 2 for s in sorted(scales)[:released])


@settings(max_examples=400, deadline=None)
@given(changes=SHEETS, asking=ASKING)
def test_a_hostile_verifier_gets_one_noisy_sum_a_round(
    changes: dict[str, Any], asking: list[tuple[Any, ...]]
) -> None:
    """Rows are asked once a round, after the account; all that left costs what is booked."""
    sheet = replace(SHEET, **changes)
    try:
        party = Watched(sheet)
    except Exception:
        return
    with suppress(CohortError):
        party.begin()
    for step, *operands in asking:
        with suppress(Exception):
            if step == "round":
                party.round(*operands)
            else:
                getattr(party.session, step)(*operands)
    asked = [t for _, t in party.kinds("read")]
    assert asked == sorted(set(asked))
    left = [t for _, t, _ in party.kinds("left")]
    assert set(left) <= set(asked) and len(left) == len(set(left))
    assert not asked or party.log[0] == "spent"
    if left:
        assert sheet.law == "gaussian" and ("a", ROSTER[0][1]) in sheet.roster
        assert apart(len(left), sheet) <= BOOKED * (1 + 1e-6)


def test_the_hostile_verifier_asks_for_what_would_leave() -> None:
    """Its double gets sums where the sheet is as agreed."""
    party = Watched().begin()
    for t in range(ROUNDS):
        party.round(t)
    assert [t for _, t, _ in party.kinds("left")] == [0, 1, 2]
