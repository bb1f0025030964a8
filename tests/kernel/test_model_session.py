"""A session of an encrypted model under a verifier that asks for anything, in any order.

Each floor has a mutant: the same file with one line changed, under which its check fails. Rings are
INSECURE. The share of the keys is a double, which notes what it encrypts; evaluation keys are real.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.kernel import model as sheet_module
from parties.kernel.model import Columns, ModelSheet, TraceMap
from parties.kernel.model import session as model_session
from parties.kernel.model.pads import Pads
from parties.kernel.model.session import Alone, ModelSession
from parties.kernel.private import Private, Terms
from parties.kernel.sheet import cost, digest_of
from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.circuits import projection
from protocols.ckks.circuits.periodic import PeriodicLayout
from protocols.ckks.context import CONJUGATION
from protocols.ckks.evaluation import CkksContext
from protocols.errors import CohortError, MessageError, ParameterError, PolicyError
from protocols.exchange import Body
from protocols.model import minibatch
from protocols.model.counts import columns_of
from protocols.privacy.laws.seeded import SeededRandomness
from tests.kernel.mutants import mutant
from tests.support import sessions
from tests.support.helpers import half_of, log2_error, through_the_codec
from tests.support.joint import JointKeys, run_ceremony

N, ROUNDS, BOUND, COLLUDERS = 512, 4, 1.0, 1
KEYS = {name: Ed25519PrivateKey.generate() for name in ("a", "b", "c", "d")}
ROSTER = tuple((name, key.public_key().public_bytes_raw().hex()) for name, key in KEYS.items())
COLUMNS = Columns(num_slots=N // 2, num_features=3, num_outputs=1, period=2, turns=2)
ROWS = 150
SHEET = ModelSheet(
    session="model-session",
    roster=ROSTER,
    rows=(ROWS, 3, 3, 3),
    columns=COLUMNS,
    circuit="link",
    link=(0.5, 0.2),
    radius=4.0,
    scale=1.0,
    rounds=ROUNDS,
    bound=BOUND,
    moves=1.5,
    law="gaussian",
    honest=3,
    bits=37,
    units=1 << 31,
)
BOOKED = cost(SHEET)
VIEW = "v" * 64
X = np.random.default_rng(1).normal(size=(ROWS, 3))
X /= 1.01 * np.linalg.norm(X, axis=1)[:, None]
Y = (X[:, 0] > 0).astype(float)
SEED = b"seed".ljust(32, b".")


def shard_of(x: Any = X, y: Any = Y, weight: Any = None) -> Any:
    """As `parties.reader.shard.Shard`."""
    n = len(x)
    weight = np.ones(n) if weight is None else weight
    return SimpleNamespace(
        x=x, y=y, weight=weight, offset=np.zeros(n), rows=n, num_features=x.shape[1]
    )


@cache
def joint() -> JointKeys:
    """Of a ceremony of four, for rotations by one place; their shares answer again."""
    context = CkksContext(CkksParameters(ring_dim=N, depth=5, security_bits=0), "ceremony")
    return run_ceremony(context, SEED, 4, (CONJUGATION, *COLUMNS.rotations))


@cache
def halves() -> tuple[Any, ...]:
    """Of the evaluation keys, as a coordinator hands them out."""
    keys, found = joint(), []
    context = keys.context
    sums: Any = None
    keys.forget()
    for share in keys.shares.values():
        own = share.relinearisation_first()
        sums = (
            own
            if sums is None
            else tuple(rns.add(a, b, context.key_primes) for a, b in zip(sums, own, strict=True))
        )
    total: Any = rns.zeros(len(context.key_primes), N)
    for share in keys.shares.values():
        own_t = share.relinearisation_second(*sums)
        total = rns.add(total, own_t, context.key_primes)
    found = [sums[1], total]
    for index in (CONJUGATION, *COLUMNS.rotations):
        total = rns.zeros(len(context.key_primes), N)
        for share in keys.shares.values():
            total = rns.add(total, share.rotation_share(index), context.key_primes)
        found.append(total)
    return tuple(found)


class Watched:
    """One party: its boundary, what it notes, and a share of keys that notes what it encrypts.

    missing: who is covered for by these keys.
    """

    missing: tuple[str, ...] = ()

    def __init__(
        self, sheet: Any = SHEET, kernel: Any = model_session, shard: Any = None, **terms: Any
    ) -> None:
        self.log: list[Any] = []
        self.private = Private(self)
        agreed: dict[str, Any] = {
            "exact": False,
            "colluders": COLLUDERS,
            "booked": ("gaussian", BOOKED),
            "keys": lambda: self,
        }
        self.private.terms = Terms(spend=self.spend, **(agreed | terms))
        rows: Any = self.private.keep(Looked(shard or shard_of(), self.log))
        self.context, self.seed, self.joint_key = joint().context, SEED, None
        with self.private:
            self.session: ModelSession = kernel.ModelSession(
                sheet, "a", rows, SeededRandomness(1), KEYS["a"]
            )

    def spend(self) -> None:
        self.log.append("spent")

    def public_key(self) -> Any:
        """(b, a)."""
        return self.joint_key, self.context.uniform_polynomial(SEED, "public-key")

    def encrypt_onto(self, public: Any, sums: Any, names: Any, hides: Any) -> Any:
        """As `KeyShare`, a label once."""
        label = names[0].rpartition("/")[0]
        if any(each[0] == "left" and each[1] == label for each in self.log):
            raise PolicyError("already given")
        copied = [[half.copy() for half in pair] for pair in sums]
        self.log.append(("left", label, copied))
        return [[half.copy() for half in pair] for pair in sums]

    def begin(self, pads: bool = True, keys: Any = 1 << 10) -> Watched:
        """With everything that a round needs, but for what is left out."""
        session = self.session
        if pads:
            made = {name: Pads(dict(ROSTER), name, lambda: SEED, KEYS[name]) for name in "bcd"}
            every = {"a": session.pad_key(), **{name: pad.key() for name, pad in made.items()}}
            for pad in made.values():
                pad.agree(every)
            session.agree_pads(every)
            self.others = made
        self.joint_key = joint().public_b
        if keys:
            session.take_keys(halves()[:keys])
        return self

    def point(self, w: Any = (0.3, -0.2, 0.1), label: str = "point") -> tuple[Any, list[str]]:
        """c0 of an encryption of w / R whose c1 is the element of a label."""
        context = self.context
        scale, found = 2.0**context.params.scale_bits, []
        parts = COLUMNS.in_parts(np.array(w) / SHEET.radius).conj()
        for k, coefficients in enumerate(model_session.subring.of_slots(parts * scale).tolist()):
            message = model_session.subring.embed(
                [round(c) for c in coefficients], context.primes, N
            )
            element = context.uniform_polynomial(SEED, f"{label}/{k}")
            masked = rns.product(element, key_of_all(), context.primes)
            found.append(rns.subtract(message, masked, context.primes))
        return found, [f"{label}/{k}" for k in range(COLUMNS.num_parts)]

    def round(self, t: Any = 0, point: Any = None, view: Any = VIEW, **asked: Any) -> Any:
        """As a party asks, inside the boundary."""
        c0, elements = self.point() if t and point is None else (point or ((), ()))
        with self.private:
            return self.session.gradient(t, c0, elements, view, **asked)

    def kinds(self, kind: str) -> list[Any]:
        """What was noted."""
        return [each for each in self.log if each[0] == kind]


class Looked:
    """Rows that note when they are read."""

    def __init__(self, shard: Any, log: list[Any]) -> None:
        self._shard, self._log = shard, log
        self.rows, self.num_features = shard.rows, shard.num_features

    def __getattr__(self, name: str) -> Any:
        if name == "schema":
            raise AttributeError(name)
        self._log.append(("read", name))
        return getattr(self._shard, name)


@cache
def key_of_all() -> Any:
    """s, shape (towers, n)."""
    total, primes = None, joint().context.primes
    for own in joint().secrets.values():
        total = own if total is None else rns.add(total, own, primes)
    return total


def opened(party: Watched, label: str, parts: Any = None, pads: bool = True) -> Any:
    """Sums over columns in a reply, or in what was under the fresh encryption, as (d,).

    parts: as they leave; pads: those of the others, which take this one's away.
    """
    low = party.context.primes[:REFRESH_TOWERS]
    (sums,) = [each[2] for each in party.kinds("left") if each[1] == label]
    slots = []
    for k, (c0, c1) in enumerate(parts or sums):
        total = rns.add(c0, rns.product(c1, key_of_all()[: len(low)], low), low)
        values = projection.project(total, low, COLUMNS.period)
        if parts and pads:
            for pad in party.others.values():
                other = pad.pad(f"{VIEW}/{label}/{k}", low, 2 * COLUMNS.period)
                modulus = math.prod(low)
                lifted = projection.project(
                    model_session.subring.embedded(other, low, N), low, COLUMNS.period
                )
                values = [(a + b) % modulus for a, b in zip(values, lifted, strict=True)]
                values = [v - modulus if v > modulus // 2 else v for v in values]
        scaled = [v / 2.0**party.context.params.scale_bits for v in values]
        slots.append(projection.to_slots(scaled, COLUMNS.period))
    found = np.stack(slots).conj().reshape(1, -1).view(np.float64)
    return found[0, :3] * COLUMNS.block_size * SHEET.link[1]


# -- floors ----------------------------------------------------------------------------------------


def refused(kernel: Any, owner: dict[str, Any] | None = None, **changes: Any) -> bool:
    """Whether a sheet with this difference is, before rows are looked at."""
    try:
        Watched(replace(SHEET, **changes), kernel, **(owner or {}))
    except (PolicyError, ParameterError):
        return True
    except Exception:
        return False
    return False


def fails(error: type[Exception], ask: Callable[[], Any]) -> bool:
    """Whether it is refused with this error."""
    try:
        ask()
    except error:
        return True
    except Exception:
        return False
    return False


def made(kernel: Any, **begun: Any) -> Watched:
    return Watched(kernel=kernel).begin(**begun)


def labels(party: Watched) -> list[str]:
    return [label for _, label, _ in party.kinds("left")]


def expected(party: Watched) -> Any:
    """Of round 0: label terms, and noise in the place of what was drawn first."""
    noise = model_session.draw_noise(SHEET, SeededRandomness(1))[0]
    return X.T @ (0.5 - Y) + sum(SHEET.rows) * noise


def rounds_rise(kernel: Any) -> bool:
    party = made(kernel)
    for t in (True, 1, 0, 1, 3, 2, 4, -1):
        with suppress(Exception):
            party.round(t)
    return labels(party) == ["gradient/1", "gradient/3"]


def a_failed_round_is_over(kernel: Any) -> bool:
    party = Watched(kernel=kernel, shard=shard_of(2 * X)).begin()
    for _ in range(2):
        with suppress(Exception):
            party.round(1)
    return party.kinds("read").count(("read", "x")) == 1 and not labels(party)


def a_repetition_is_at_the_same_point(kernel: Any) -> bool:
    party = made(kernel)
    first, other = party.point(), party.point((0.0, 0.5, 0.0))
    party.round(1, first)
    bad = [lambda: party.round(1, other, again=True), lambda: party.round(2, first, again=True)]
    elements = (first[0], ["other", "labels"])
    found = [
        fails(PolicyError, ask) for ask in (*bad, lambda: party.round(1, elements, again=True))
    ]
    with suppress(PolicyError):
        party.round(1, first, again=True)
    return all(found) and labels(party) == ["gradient/1", "cover-gradient/1"]


def a_repetition_has_the_same_noise(kernel: Any) -> bool:
    party = made(kernel)
    each = [opened(party, "gradient/0", party.round(0))]
    each.append(opened(party, "cover-gradient/0", party.round(0, again=True)))
    return bool(np.allclose(each[0], each[1], atol=1e-6))


def the_account_is_spent_first(kernel: Any) -> bool:
    party = made(kernel)
    party.round()
    return party.log[0] == "spent" and len(party.log) > 2


def points_are_of_this_run(kernel: Any) -> bool:
    party = made(kernel)
    c0, elements = party.point()
    bad: list[Any] = [
        (c0[:0], elements),
        ([c0[0][:2]], elements),
        ([*c0, *c0], elements * 2),
        (c0, []),
        ([c0[0] + np.uint64(1 << 62)], elements),
        ([c0[0].astype(float)], elements),
    ]
    found = [fails(MessageError, lambda p=p: party.round(1, p)) for p in bad]  # type: ignore[misc]
    found.append(fails(MessageError, lambda: party.round(0, (c0, elements))))
    return all(found) and not party.log


def the_missing_are_as_agreed(kernel: Any) -> bool:
    party = made(kernel)
    covered = Watched(replace(SHEET, law="", lost=1), kernel, exact=True).begin()
    party.missing, covered.missing = ("b",), ("b", "c")
    found = [fails(PolicyError, lambda p=p: p.round(0)) for p in (party, covered)]  # type: ignore[misc]
    covered.missing = ("b",)
    with suppress(PolicyError):
        covered.round(0)
    return all(found) and labels(covered) == ["gradient/0"]


def rows_are_as_the_sheet_says(kernel: Any) -> bool:

    def changed(values: Any, by: float) -> Any:
        found = values.copy()
        found[7] = by * np.ones_like(found[7])
        return found

    once = np.ones(ROWS)
    shards = [
        *(shard_of(changed(X, by)) for by in (1.0, -3.0, math.nan)),
        *(shard_of(y=changed(Y, by)) for by in (2.0, -0.5, math.nan)),
        *(shard_of(weight=changed(once, by)) for by in (1.5, -1.0, math.nan)),
    ]
    parties = [Watched(kernel=kernel, shard=shard).begin() for shard in shards]
    return all(fails(Exception, lambda p=p: p.round(1)) and not labels(p) for p in parties)  # type: ignore[misc]


def a_row_has_its_own_target(kernel: Any) -> bool:
    """Where three rows are asked for three targets, no row has those of all."""
    sheet = replace(SHEET, law="", rows=(3, 3, 3, 3), columns=replace(COLUMNS, num_outputs=3))
    party = Watched(sheet, kernel, shard_of(X[:3], Y[:3]), exact=True).begin()
    return fails(Exception, party.round)


def keys_are_complete(kernel: Any) -> bool:
    party = made(kernel, keys=3)
    with suppress(Exception):
        party.round(0)
    return not party.log


def keys_come_once(kernel: Any) -> bool:
    party, early = made(kernel), Watched(kernel=kernel)
    found = [
        fails(PolicyError, lambda: party.session.take_keys(halves()[:1])),
        fails(PolicyError, lambda: early.session.take_keys(halves())),
    ]
    return all(found)


def a_state_comes_once(kernel: Any) -> bool:
    party, early = made(kernel), Watched(kernel=kernel)
    return fails(PolicyError, lambda: party.session.restore(early.session.state()))


def keys_are_of_this_ring(kernel: Any) -> bool:
    party = Watched(kernel=kernel)
    party.joint_key = joint().public_b
    bad = [halves()[0][:3], halves()[0] + np.uint64(1 << 62)]
    bad_half = [fails(MessageError, lambda h=h: party.session.take_keys([h])) for h in bad]  # type: ignore[misc]
    return all(bad_half)


def maps_are_of_its_columns(kernel: Any) -> bool:
    """Elsewhere a mask would fill the primes, and a steered c1 show all of a key."""
    party, own = made(kernel), (COLUMNS.block_size, COLUMNS.period)

    def is_refused(columns: int, period: int) -> bool:
        maps = [TraceMap(columns, period, 1.0)]
        return fails(PolicyError, lambda: party.session.refresh(maps, "refresh/0", Body()))

    others = ((own[0], N // 2), (own[0] * 2, own[1] // 2), (own[0] * 2, own[1]))
    return all(is_refused(*other) for other in others) and not is_refused(*own)


def slots_are_of_this_ring(kernel: Any) -> bool:
    wide = replace(COLUMNS, num_slots=2 * COLUMNS.num_slots)
    return fails(PolicyError, lambda: Watched(replace(SHEET, columns=wide), kernel))


def replies_open_among_all(kernel: Any) -> bool:
    """Pads of the others take this one's away, if they were asked the same."""
    party, alone, apart = made(kernel), made(kernel), made(kernel)
    found = opened(party, "gradient/0", party.round(0))
    hidden = [opened(alone, "gradient/0", alone.round(0)[:1], pads=False)]
    hidden.append(opened(apart, "gradient/0", apart.round(0, view="w" * 64)))
    far = [np.abs(each).max() > 1e9 for each in hidden]
    return bool(np.allclose(found, expected(party), atol=1e-6)) and all(far)


def all_else_is_uniform(kernel: Any) -> bool:
    """An element of the subring has 2k values."""
    (c0, _), *_ = made(kernel).round(0)
    return len(np.unique(c0[0])) > N // 2


def replies_are_encrypted(kernel: Any) -> bool:
    party = made(kernel)
    party.round(0)
    return labels(party) == ["gradient/0"]


def noise_is_there(kernel: Any) -> bool:
    """At the scale of the sheet: 4 rounds of 3 values, chi-square of 12 within [2, 40]."""
    party, found = made(kernel), []
    for t in range(ROUNDS):
        reply = opened(party, f"gradient/{t}", party.round(t))
        model = 0.2 * X @ np.array([0.3, -0.2, 0.1]) / 4.0 if t else 0.0
        found.append(reply - X.T @ (0.5 - Y + model))
    sigma = sum(SHEET.rows) * math.ldexp(SHEET.units, -SHEET.bits)
    return 2 < float(((np.array(found) / sigma) ** 2).sum()) < 40


def nothing_leaves_an_ended_session(kernel: Any) -> bool:
    party = made(kernel)
    party.round(0)
    session = party.session
    session.erase()
    held: Any = (session._noise, session._encoded, session._chunks)
    asked = [lambda: party.round(1), lambda: party.round(0, again=True)]
    return not any(each is not None and len(each) for each in held) and all(
        fails(PolicyError, ask) for ask in asked
    )


def a_restarted_session_goes_on(kernel: Any) -> bool:
    party, fresh = made(kernel), Watched(kernel=kernel)
    first = opened(party, "gradient/0", party.round(0))
    fresh.joint_key = joint().public_b
    fresh.session.restore(through_the_codec(party.session.state()))
    fresh.others = party.others
    if not fails(PolicyError, lambda: fresh.round(0)):
        return False
    again = opened(fresh, "cover-gradient/0", fresh.round(0, again=True))
    return bool(np.allclose(first, again, atol=1e-6))


ALL: dict[str, Any] = {"booked": ("gaussian", 1e9)}
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
        lambda k: refused(
            k, {"exact": True, "colluders": 2}, roster=ROSTER[:2], rows=(ROWS, 3), law=""
        ),
    ),
    "own rows": (
        "len(sheet.rows) == len(sheet.roster) and sheet.rows[place] == rows.rows", "True",
        lambda k: refused(k, ALL, rows=(ROWS + 1, 3, 3, 3)) and refused(k, ALL, rows=(ROWS,)),
    ),
    "others' rows": (
        "lambda: all(type(n) is int and n > 0 for n in sheet.rows)", TRUE,
        lambda k: refused(k, ALL, rows=(ROWS, -1, 3, 3)),
    ),
    "columns": (
        "lambda: columns.num_features == rows.num_features", TRUE,
        lambda k: refused(k, columns=replace(COLUMNS, num_features=2)),
    ),
    "a circuit": (
        "lambda: len(sheet.link) > 1", TRUE, lambda k: refused(k, {"booked": None}, link=()),
    ),
    "a finite link": (
        "lambda: all(map(math.isfinite, (*sheet.link, sheet.gamma)))", TRUE,
        lambda k: refused(k, {"exact": True}, law="", link=(0.5, math.inf, -1.0)),
    ),
    "targets' unit": (
        "lambda: fits(sheet.unit)", TRUE,
        lambda k: all(
            refused(k, {"exact": True}, law="", unit=each) for each in (0.0, math.nan, 1e41)
        ),
    ),
    "scales": (
        "lambda: all(0 < s < math.inf for s in (sheet.scale, sheet.radius, sheet.bound))", TRUE,
        lambda k: refused(k, radius=-1.0) and refused(k, scale=-2.0),
    ),
    "what replies are divided by": (
        "fits(sheet.link[-1] * sheet.scale ** (1 - len(sheet.link)))", "True",
        lambda k: refused(k, {"exact": True}, law="", link=(0.5, 1e-60)),
    ),
    "some rounds": (
        "lambda: type(sheet.rounds) is int and sheet.rounds > 0", TRUE,
        lambda k: refused(k, rounds=-1),
    ),
    "whole batches": (
        "lambda: type(sheet.batches) is int and sheet.batches > 0", TRUE,
        lambda k: refused(k, {"exact": True}, law="", batches=0),
    ),
    "who is left": (
        "lambda: 0 <= sheet.lost <= max(0, parties - max(2, terms.colluders + 1))", TRUE,
        lambda k: refused(k, {"exact": True}, law="", lost=3),
    ),
    "exact sums": (
        "lambda: bool(sheet.law) or terms.exact", TRUE, lambda k: refused(k, law=""),
    ),
    "law": (
        '(booked or (sheet.law,))[0] == sheet.law == "gaussian"', "True",
        lambda k: refused(k, ALL, law="laplace")
        and refused(k, {"booked": ("laplace", 1e9)}) and refused(k, {"booked": None}, law="x"),
    ),
    "some noise": (
        "lambda: type(sheet.units) is int and sheet.units >= LEAST_UNITS", TRUE,
        lambda k: refused(k, {"booked": None}, units=0)
        and refused(k, units=1 << 29, bits=SHEET.bits - 2),
    ),
    "shares of colluders": (
        "lambda: 1 <= sheet.honest <= most", TRUE,
        lambda k: refused(k, honest=4),
    ),
    "all rows, of all parties": (
        "lambda: (sheet.batches, sheet.lost) == (1, 0)", TRUE,
        lambda k: refused(k, batches=2) and refused(k, lost=1),
    ),
    "no offsets": (
        'lambda: "offset" not in sheet.terms', TRUE, lambda k: refused(k, terms=("offset",)),
    ),
    "two rows' parts": (
        "lambda: sheet.moves * SLACK >= least()", TRUE,
        lambda k: refused(k, moves=0.99) and refused(k, bound=1.6),
    ),
    "noise as booked": (
        "lambda: cost(sheet) <= booked[1] * SLACK", TRUE,
        lambda k: refused(k, rounds=ROUNDS + 1) and refused(k, units=SHEET.units - (1 << 21)),
    ),
    "rounds rise": ("max(0, first) <= t < last", "0 <= t < last", rounds_rise),
    "whole rounds": ("type(t) is not int or", "", rounds_rise),
    "a failed round": (
        "self._next, self._asked = t + 1, asked", "self._asked = asked", a_failed_round_is_over,
    ),
    "the same point": (
        "if again and asked != self._asked:", "if False:", a_repetition_is_at_the_same_point,
    ),
    "the same noise": ("if self._noise is None:", "if True:", a_repetition_has_the_same_noise),
    "spent first": ("        self._terms.spend()\n", "", the_account_is_spent_first),
    "parts of a point": ("len(point) != due or ", "", points_are_of_this_run),
    "elements of a point": ("or len(elements) < due", "", points_are_of_this_run),
    "residues of a point": (
        "rns.check(c0, context.primes, context.params.ring_dim)", "pass", points_are_of_this_run,
    ),
    "how many can be missing": (
        "if len(missing := self._keys.missing) > sheet.lost", "if not (missing := self._keys)",
        the_missing_are_as_agreed,
    ),
    "bound of rows": ("row_norms(x) <= sheet.bound * SLACK,", "", rows_are_as_the_sheet_says),
    "a target each": ("len(y) != len(x) or ", "", a_row_has_its_own_target),
    "least target": ("(y >= (0 if sheet.law else -SLACK)) & ", "", rows_are_as_the_sheet_says),
    "largest target": (" & (y <= SLACK),", ",", rows_are_as_the_sheet_says),
    "least weight": ("(shard.weight >= 0) & ", "", rows_are_as_the_sheet_says),
    "largest weight": (" & (shard.weight <= 1),", ",", rows_are_as_the_sheet_says),
    "targets as they are": (
        "lambda: (sheet.gamma, sheet.unit) == (0, 1)", TRUE, lambda k: refused(k, unit=-1.0),
    ),
    "all evaluation keys": ("if self._loaded is None:", "if False:", keys_are_complete),
    "keys once": ("or count > due:", "or False:", keys_come_once),
    "the joint key first": (
        "self._keys.joint_key is None or not halves", "not halves", keys_come_once,
    ),
    "one state": (
        "if self._next or self._chunks or self._is_over:", "if False:", a_state_comes_once,
    ),
    "ring of keys": (
        "rns.check(half, context.key_primes, context.params.ring_dim)", "pass",
        keys_are_of_this_ring,
    ),
    "ring of slots": (
        "if keys.context.params.num_slots != sheet.columns.num_slots:", "if False:",
        slots_are_of_this_ring,
    ),
    "maps of a refresh": (
        "if any((m.columns, m.period) != (columns.block_size, columns.period) for m in maps):",
        "if False:", maps_are_of_its_columns,
    ),
    "pads": (
        "rns.add(pad, subring.reduced(own[part], low), low)", "subring.reduced(own[part], low)",
        replies_open_among_all,
    ),
    "the view": ('f"{view}/{label}/{part}"', 'f"{label}/{part}"', replies_open_among_all),
    "the kernel": (
        "hidden = rns.add(hidden, subring.embedded(inner, low, n), low)",
        "hidden = subring.embedded(inner, low, n)", all_else_is_uniform,
    ),
    "encryption": (
        'keys.encrypt_onto(keys.public_key(), sums, names, ("gradient", "gradient"))',
        "[[*pair] for pair in sums]",
        replies_are_encrypted,
    ),
    "noise": (" + sum(sheet.rows) * self._drawn()[t]", "", noise_is_there),
    "scale of noise": (
        "discrete_gaussian(sheet.units,", "discrete_gaussian(sheet.units // 4,", noise_is_there,
    ),
    "the end": (
        "self._next, self._is_over = self._sheet.rounds, True\n        self._forget()", "pass",
        nothing_leaves_an_ended_session,
    ),
    "a restart": ("        restore(self, own)\n", "",
                  a_restarted_session_goes_on),
}  # fmt: skip


def test_rows_meet_a_model_under_the_keys_of_their_run() -> None:
    """Which are there before, or its rounds would be answered under others."""
    with pytest.raises(PolicyError, match="no session of keys"):
        Watched(keys=Terms().keys)


@pytest.mark.parametrize("wrong", [{"circuit": "x"}, {"link": (0.5,)}])
def test_a_circuit_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    assert refused(model_session, {"booked": None}, **wrong)


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_holds_and_its_mutant_is_seen(floor: str) -> None:
    old, new, holds = FLOORS[floor]
    assert holds(model_session)
    assert not holds(mutant(model_session, old, new))


def test_opened() -> None:
    party = Watched().begin()
    parts = party.round(0)
    noise = sum(SHEET.rows) * model_session.draw_noise(SHEET, SeededRandomness(1))[0]
    np.testing.assert_allclose(
        opened(party, "gradient/0", parts), X.T @ (0.5 - Y) + noise, atol=1e-6
    )
    party.round(1)
    w = np.array([0.3, -0.2, 0.1])
    np.testing.assert_allclose(opened(party, "gradient/1"), X.T @ (0.2 * X @ w / 4.0), atol=1e-6)


# -- slots -----------------------------------------------------------------------------------------

LAYOUTS = [
    Columns(num_slots=32, num_features=5, num_outputs=1, period=k, columns_of_row=c,
            rows_of_column=r, turns=b)
    for k in (1, 2, 4) for r in (1, 2, 4) for b in (1, 2, 4) for c in (1, 2)
    if max(r, b) <= k and (c == 1 or (r, b) == (1, 1))
]  # fmt: skip


def every_row_has_its_slots(kernel: Any) -> bool:
    """Over the products of a gradient, each number of each row once, where its own score stands."""
    for known in LAYOUTS:
        layout = kernel.Columns(**asdict(known))
        rows = np.arange(1.0, 1 + 5 * layout.rows_per_group).reshape(-1, 5)
        own = layout.in_columns(np.arange(1.0, 1 + len(rows)).astype(complex)).real.astype(int)
        met = []
        for part in range(layout.output_parts):
            for shift in range(layout.rows_of_column):
                slots = layout.slots_of(rows, part, shift)
                for values in (slots.real, slots.imag):
                    of = (values[values > 0].astype(int) - 1) // 5 + 1
                    if not (of == own[values > 0]).all():
                        return False
                    met += values[values > 0].tolist()
        if sorted(met) != rows.ravel().tolist():
            return False
    return True


def layouts_are_sound(kernel: Any) -> bool:
    bad: list[dict[str, Any]] = [
        {"period": 3},
        {"period": 512},
        {"rows_of_column": 4},
        {"turns": 4},
        {"turns": 0},
        {"num_features": 2.0},
        {"num_outputs": -1},
        {"columns_of_row": 3, "turns": 1},
        {"columns_of_row": 2},
        {"num_slots": 100},
    ]
    each = [{n: getattr(COLUMNS, n) for n in NAMES} | b for b in bad]
    return all(fails(ParameterError, lambda f=f: kernel.Columns(**f)) for f in each)  # type: ignore[misc]


NAMES = tuple(Columns.__dataclass_fields__)
SLOTS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "rows of a column": ("place % own.shape[1]", "place * 0", every_row_has_its_slots),
    "pairs": ("(place + turn) % len(place)", "place", every_row_has_its_slots),
    "rows of a group": ("found[: len(values)] = values", "found[:] = values[0]",
                        every_row_has_its_slots),
    "powers of two": ("powers = whole and not any(n & (n - 1) for n in numbers[:4])",
                      "powers = whole", layouts_are_sound),
    "whole numbers": ("type(n) is int and n > 0", "n > 0", layouts_are_sound),
    "room for rows": ("and max(r, b) <= k", "", layouts_are_sound),
    "room for columns": ("max(k * self.columns_of_row, 2) <= self.num_slots", "True",
                         layouts_are_sound),
    "ways": ("self.columns_of_row > 2 or ", "", layouts_are_sound),
    "turned products": (" or (turned and (r, b) != (1, 1))", "", layouts_are_sound),
}  # fmt: skip


@pytest.mark.parametrize("floor", SLOTS)
def test_slots_hold_and_a_mutant_is_seen(floor: str) -> None:
    old, new, holds = SLOTS[floor]
    assert holds(sheet_module)
    try:
        assert not holds(mutant(sheet_module, old, new))
    except IndexError:
        return


def test_columns_are_the_plans() -> None:
    """What both know is alike."""
    for features, rows, width, outputs in ((5, 300, 2, None), (9, 40, 16, None), (4, 900, 4, 3)):
        layout = PeriodicLayout(
            num_slots=256, num_features=features, rows_by_party=(rows, 7), outputs=outputs,
            features_per_ciphertext=width,
        )  # fmt: skip
        own = columns_of(layout)
        names = [n for n in dir(own) if n[0] != "_" and hasattr(layout, n) and n != "of"]
        assert {"block_size", "num_parts", "rows_per_group", "steps", "sums"} < {*names}
        assert {n: getattr(own, n) for n in names if n not in ("rotations", "shape")} == {
            n: getattr(layout, n) for n in names if n not in ("rotations", "shape")
        }
        assert (CONJUGATION, *own.rotations) == layout.rotations


def test_a_sheet_has_one_digest() -> None:
    changed = [replace(SHEET, **{f.name: f"{f.name}?"}) for f in fields(SHEET)]
    other = replace(SHEET, columns=replace(COLUMNS, num_features=4))
    assert digest_of(SHEET) == digest_of(replace(SHEET))
    assert len({digest_of(sheet) for sheet in (SHEET, other, *changed)}) == 2 + len(changed)


# -- a hostile verifier ----------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-3, 5), st.sampled_from([1 << 10, 1 << 24, 1 << 40, 1 << 70]),
    st.sampled_from([0.0, 0.5, 1.5, 3.0, 1e-300, 1e300, math.inf, math.nan, "0", None]),
)  # fmt: skip
SHEETS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("rounds", "moves", "honest", "bits", "units", "batches"), NUMBERS),
        **dict.fromkeys(("lost", "bound", "radius", "scale", "gamma", "unit"), NUMBERS),
        "law": st.sampled_from(["gaussian", "", "laplace"]),
        "circuit": st.sampled_from(["link", "lffr", "x"]),
        "link": st.sampled_from([(0.5, 0.2), (0.5, 0.2, 0.0, -0.01), (0.9, 0.1), (0.5,), ()]),
        "signed": st.booleans(),
        "terms": st.sampled_from([("weight",), ("offset",), ("x",)]),
        "rows": st.sampled_from([(ROWS, 3, 3, 3), (ROWS, 1 << 40, 3, 3), (ROWS, -100, 3, 3), ()]),
        "roster": st.permutations(ROSTER).flatmap(
            lambda r: st.integers(0, 4).map(lambda n: tuple(r)[:n])
        ),
        "columns": st.sampled_from([
            COLUMNS, replace(COLUMNS, turns=1), replace(COLUMNS, num_outputs=2),
            replace(COLUMNS, rows_of_column=2), replace(COLUMNS, num_features=4),
        ]),
    },
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("round"),
            st.one_of(st.integers(-1, ROUNDS), NUMBERS),
            st.sampled_from(["point", "other", "none", "short", "odd"]),
            st.sampled_from([VIEW, "", "v", None]),
            st.sampled_from([(), ("b",), ("b", "c", "d")]),
            st.booleans(),
        ),
        st.tuples(st.sampled_from(["pad_key", "erase"])),
        st.tuples(st.just("agree_pads"), st.just({})),
        st.tuples(st.just("take_keys"), st.sampled_from([(), (rns.zeros(2, N),), None])),
    ),
    max_size=10,
)


@settings(max_examples=150, deadline=None)
@given(changes=SHEETS, asking=STEPS, whole=st.booleans())
def test_a_hostile_verifier_gets_one_noisy_gradient_a_round(
    changes: dict[str, Any], asking: list[tuple[Any, ...]], whole: bool
) -> None:
    """Rounds rise, each at one point, after the account; all that left costs what is booked."""
    sheet = replace(SHEET, **changes)
    try:
        party = Watched(sheet)
    except Exception:
        return
    with suppress(CohortError):
        party.begin(pads=whole, keys=1 << 10 if whole else 3)
    points = {
        "point": party.point(), "other": party.point((0.0, 0.5, 0.0)), "none": ((), ()),
        "short": (party.point()[0][:0], ["x"]), "odd": ([None], [None]),
    }  # fmt: skip
    answered: list[tuple[Any, str, bool]] = []
    for step, *operands in asking:
        with suppress(Exception):
            if step == "round":
                t, point, view, party.missing, again = operands
                party.round(t, points[point], view, again=again)
                answered.append((t, point, again))
            else:
                getattr(party.session, step)(*operands)
    asked = [t for t, _, again in answered if not again]
    assert asked == sorted({*asked}) and all(type(t) is int and 0 <= t < ROUNDS for t in asked)
    for t, point, again in answered:
        assert not again or (t, point, False) in answered
    assert not party.kinds("left") or party.log[0] == "spent"
    assert not party.log or whole
    if party.kinds("left"):
        assert sheet.law == "gaussian" and ("a", ROSTER[0][1]) in sheet.roster
        rounds = {label.rpartition("/")[2] for label in labels(party)}
        sigma = sum(sheet.rows) * math.ldexp(sheet.units, -sheet.bits)
        honest = len(sheet.roster) - COLLUDERS
        assert len(rounds) * (1.0 / sigma) ** 2 / honest <= BOOKED * (1 + 1e-6)


def test_the_hostile_verifier_asks_for_what_would_leave() -> None:
    """Its double gets gradients where the sheet is as agreed."""
    party = Watched().begin()
    for t in range(ROUNDS):
        party.round(t)
    assert labels(party) == [f"gradient/{t}" for t in range(ROUNDS)]


@pytest.mark.parametrize("batches", [1, 2, 5, 100])
def test_rows_are_taken_as_planned(batches: int) -> None:
    """One in K, by the coins that the twin of a seeded run has."""
    sheet = replace(SHEET, law="", batches=batches)
    party, source = Watched(sheet, exact=True), SeededRandomness(1)
    taken = minibatch.size(ROWS, batches, COLUMNS.block_size)
    for t in range(1, 4):
        found = party.session._counts(t)
        if taken == ROWS:
            assert found is None
        else:
            assert (found == minibatch.weights(t, ROWS, taken, source)).all()
    assert party.session._counts(0) is None
    # A row that is drawn counts up to K times, and none of it is cut off.
    rows, slopes = np.full((40, 3), 0.8), np.full(40, 0.5 * batches)
    np.testing.assert_allclose(party.session._added(rows, slopes), rows.T @ slopes, rtol=1e-9)


class Apart(Alone):
    """What a party has when nobody shares anything with it."""

    def leave(self) -> None:
        pass


def test_a_run_whose_parties_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has evaluation keys, points and encryptions of zero of its own."""
    monkeypatch.setattr("parties.verifier.encrypted_model.Shared", Apart)
    run = sessions.model_session(update="nag", rounds=3)
    weights = run.run().weights
    halves = [half_of(party).session for party in run.parties.values()]
    assert len({id(half._shared) for half in halves}) == 3
    assert log2_error(weights, run.twin()) < -17
