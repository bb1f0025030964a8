"""A run of an encrypted model: one party's rows, noise and pads, behind a sheet that it checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from scipy.special import logit

from parties.kernel.integers import added, clip_rows, row_norms
from parties.kernel.keys.key_share import Asked, Halves
from parties.kernel.keys.session import KeySession, Once, refresh_reply
from parties.kernel.model import ModelSheet
from parties.kernel.model.clear_rows import ClearRows, party_circuit
from parties.kernel.model.pads import Pads, draw_masks
from parties.kernel.private import Terms, opened, terms_of
from parties.kernel.sheet import SLACK, Floor, fits, hold, of_rows
from protocols.ckks import REFRESH_TOWERS, subring
from protocols.ckks import residues as rns
from protocols.ckks.context import CONJUGATION
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.factored import Link
from protocols.ckks.residues import Residues
from protocols.ckks.sampling import encryption
from protocols.ckks.subring import TraceMap
from protocols.errors import MessageError, PolicyError
from protocols.exchange import COVERED, Body, rotation_label
from protocols.exchange.signed_values import SignedValue
from protocols.privacy.laws import ExpandedRandomness, RandomSource, apart
from protocols.privacy.laws.discrete import between, discrete_gaussian
from protocols.steps import restore, state_of
from protocols.steps.locks import CHECK, WORDS, asked_for

Array = NDArray[np.float64]
ROOM = 16.0
"""No slope of a link on its interval leaves [-ROOM, ROOM]."""


class Alone(Once):
    """What parties are handed alike, made for one; a simulator's cache makes it once for all."""

    room = 9 << 28
    """For encoded rows [bytes]; others are encoded again in every round."""

    def kept(self, halves: Sequence[Residues]) -> Sequence[Residues]:
        """Halves of evaluation keys."""
        return tuple(halves)

    def loaded(
        self, session: str, chunks: Sequence[Any], make: Callable[[], CkksContext]
    ) -> CkksContext:
        """A context with these keys, which are forgotten with the last reference to it."""
        return make()


class ModelSession:
    """One party of one run.

    name: in the roster; rows: behind their boundary, which has the owner's terms; randomness: of
    noise and of the coins by which rows are taken; shared: see `Alone`.

    Raises:
        PolicyError, ParameterError: the sheet asks for more than the owner's terms, is none, or the
            run has no session of keys yet.
    """

    def __init__(
        self,
        sheet: ModelSheet,
        name: str,
        rows: Any,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
        shared: Any = None,
    ) -> None:
        self._sheet, self._rows, self._terms = sheet, rows, terms_of(rows)
        self._randomness = randomness
        self._circuit: type[ClearRows] = party_circuit(sheet.circuit, self._terms.protocols)
        key = signing_key.public_key().public_bytes_raw().hex()
        check(sheet, name, key, rows, self._terms, self._circuit)
        keys: KeySession = self._terms.keys()
        self._keys = keys
        if keys.context.params.num_slots != sheet.columns.num_slots:
            raise PolicyError("the sheet of this run is refused: slots of another ring")
        self._link = Link.of([c * sheet.scale**-k for k, c in enumerate(sheet.link)])
        self._shared: Any = shared or Alone()
        self._pads = Pads(dict(sheet.roster), name, lambda: keys.seed, signing_key)
        self._next, self._asked, self._is_over = 0, list[str](), False
        self._chunks: list[Any] = []
        self._forget()

    def _forget(self) -> None:
        self._noise: Array | None = None
        self._encoded: tuple[Array, Array, Any] | None = None
        self._clear: ClearRows | None = None
        self._loaded: Any = None

    # -- keys -------------------------------------------------------------------------------------

    def pad_key(self) -> SignedValue:
        """See `Pads.key`. Raises PolicyError: there is no key share yet."""
        return self._pads.key()

    def agree_pads(self, keys: Mapping[str, SignedValue]) -> None:
        """See `Pads.agree`."""
        self._pads.agree(keys)

    def take_keys(self, halves: Sequence[Residues]) -> None:
        """Evaluation keys, in their order, some at a time; once all are here, they are loaded.

        H1 and sum_p t_p of the relinearisation key come first, then the summed b of each rotation.

        Raises:
            PolicyError: too many, or before the joint key. MessageError: of another ring.
        """
        context, due = self._keys.context, 2 + len(self._rotations)
        count = sum(map(len, self._chunks)) + len(halves)
        if self._keys.joint_key is None or not halves or count > due:
            raise PolicyError("evaluation keys come once, after the joint key")
        for half in halves:
            rns.check(half, context.key_primes, context.params.ring_dim)
        self._chunks.append(self._shared.kept(halves))
        if count == due:
            self._load(self._keys.joint_key)

    @property
    def _rotations(self) -> tuple[int, ...]:
        return (CONJUGATION, *self._sheet.columns.rotations)

    def _load(self, b: Residues) -> None:
        seed, session = self._keys.seed, self._sheet.session

        def make() -> CkksContext:
            found = CkksContext(self._keys.context.params, session)
            first, second, *rest = (half for chunk in self._chunks for half in chunk)
            maps = [
                found.rotation_key_map(i, found.uniform_key_half(seed, rotation_label(i)), b)
                for i, b in zip(self._rotations, rest, strict=True)
            ]
            found.load_evaluation_keys(found.evaluation_key(first, second), maps)
            return found

        self._loaded = self._shared.loaded(session, self._chunks, make)

    # -- a round ----------------------------------------------------------------------------------

    def gradient(
        self,
        t: int,
        point: Sequence[Residues],
        elements: Sequence[str],
        view: str,
        again: bool = False,
    ) -> list[list[Residues]]:
        """(c0, c1) of each part of the gradient of round t, noise included; once, t rising.

        point: c0 of each part at level 0, none at t = 0, where weights are zero; elements: labels
        of the random elements that are their c1; view: what parties of one sum are asked alike,
        pads of others do not cancel; again: once more for the same point, without parties that
        have vanished since.

        Raises:
            PolicyError: the round is over, or none; keys are due; a repetition at another point.
            MessageError: the point is not of this run.
        """
        label = self._opened_round(t, point, elements, again)
        self._terms.spend()
        keys, context, columns = self._keys, self._keys.context, self._sheet.columns
        low, n = context.primes[:REFRESH_TOWERS], context.params.ring_dim
        counts = self._counts(t)
        sums: Any = [[np.zeros((len(low), n), np.uint64)] * 2] * columns.num_parts
        if point:
            sums = self._at(point, elements, counts)
        names = [f"{label}/{k}" for k in range(len(sums))]
        parts = keys.encrypt_onto(keys.public_key(), sums, names, ("gradient", "gradient"))
        own, stream = self._own_terms(t, counts), ExpandedRandomness()
        for part, polynomials in enumerate(parts):
            pad = self._pads.pad(f"{view}/{label}/{part}", low, 2 * columns.period, keys.missing)
            inner = rns.add(pad, subring.reduced(own[part], low), low)
            hidden = subring.outside(low, n, columns.period, stream)
            hidden = rns.add(hidden, subring.embedded(inner, low, n), low)
            polynomials[0] = rns.add(polynomials[0], hidden, low)
        return parts

    def _opened_round(
        self,
        t: int,
        point: Sequence[Residues],
        elements: Sequence[str],
        again: bool,
    ) -> str:
        """The round's label; from here on it is over, whatever comes of it."""
        sheet, context = self._sheet, self._keys.context
        first, last = (self._next - 1, self._next) if again else (self._next, sheet.rounds)
        if self._is_over or type(t) is not int or not max(0, first) <= t < last:
            raise PolicyError(f"round {t!r} is over or none: {first} to {last - 1} are")
        if self._loaded is None:
            raise PolicyError("not all evaluation keys are here yet")
        if len(missing := self._keys.missing) > sheet.lost:
            raise PolicyError(f"{missing} are missing, more than was agreed")
        due = sheet.columns.num_parts if t else 0
        if len(point) != due or len(elements) < due:
            raise MessageError(f"{len(point)} parts of a point, {due} are due")
        for c0 in point:
            rns.check(c0, context.primes, context.params.ring_dim)
        asked = [*(sha256(c0.tobytes()).hexdigest() for c0 in point), *elements[:due]]
        if again and asked != self._asked:
            raise PolicyError(f"this is not for the point that 'gradient/{t}' was asked at")
        self._next, self._asked = t + 1, asked
        return f"{COVERED if again else ''}gradient/{t}"

    def _at(
        self, point: Sequence[Residues], elements: Sequence[str], counts: Array | None
    ) -> list[list[Residues]]:
        """Sums over rows at a point; those of parties of one process share what is made of it."""
        rows, context = self._in_clear(), self._keys.context
        if counts is not None:
            rows = rows.only(np.flatnonzero(counts), counts[counts > 0])

        def make() -> Any:
            uniform = (context.uniform_polynomial(self._keys.seed, e) for e in elements)
            return rows.rotated([[c0, c1] for c0, c1 in zip(point, uniform, strict=False)])

        return rows.gradient(self._shared.once(self._loaded, "point", tuple(self._asked), make))

    def refresh(self, maps: Sequence[TraceMap], step: str, asked: Body) -> Body:
        """Shares of a refresh, in a reply that opens where all parties were asked for the same.

        maps: of the step's ciphertexts, whose c1 are what is asked; see `protocols.steps.locks`.

        Raises:
            PolicyError: the sheet has no such refresh, it is over, or pads are due; a map is of
                other columns: its mask would fill the primes elsewhere. MessageError: malformed.
        """
        keys, columns = self._keys, self._sheet.columns
        if any((m.columns, m.period) != (columns.block_size, columns.period) for m in maps):
            raise PolicyError("a map of this refresh is of other columns than the run's")
        lock, words = self._pads.lock(asked_for(step, asked, keys.covering), keys.missing)
        low, n = keys.context.primes[:REFRESH_TOWERS], keys.context.params.ring_dim
        streams = iter(lock.streams(len(asked.blobs), low, n))

        def shares(some: Sequence[Asked]) -> list[Halves]:
            found = keys.shares(some, draw_masks, of_model=True)
            return [(rns.add(h0, next(streams), low), h1) for h0, h1 in found]

        reply = refresh_reply(keys.context, shares, maps, step, asked)
        return Body({WORDS: words, CHECK: lock.check}, reply.blobs)

    # -- going on in another process --------------------------------------------------------------

    STATE = ("_is_over", "_next", "_asked", "_noise", "_pads")

    def state(self) -> Any:
        """For `restore`, with the evaluation keys."""
        return [state_of(self), [[*chunk] for chunk in self._chunks]]

    def restore(self, state: Any) -> None:
        """Inverse of `state`, of a session that has none yet; the run's keys are here.

        Raises:
            PolicyError: rounds would be answered again.
        """
        if self._next or self._chunks or self._is_over:
            raise PolicyError("a state is taken once, before the first round")
        own, held = state
        restore(self, own)
        for halves in held:
            self.take_keys(halves)

    def erase(self) -> None:
        """Forget rows, noise, pads and keys; nothing leaves any more."""
        self._next, self._is_over = self._sheet.rounds, True
        self._forget()
        self._chunks = []
        self._pads.erase()

    # -- rows -------------------------------------------------------------------------------------

    def _own_terms(self, t: int, counts: Array | None = None) -> list[list[int]]:
        """(sum_i u_i x_i (p(0) - y_i) + N chi_t) / A of each part, as coefficients of the subring.

        One B-th of it: sums over columns make B of that. p(0) - y stands for what of the slopes is
        known in the clear; counts: beside u.
        """
        sheet, columns = self._sheet, self._sheet.columns
        rows, targets, shard = self._rows_and_targets()
        weight = shard.weight if counts is None else shard.weight * counts
        offset = shard.offset if "offset" in sheet.terms else np.zeros(1)
        known = self._circuit.known(sheet.link, sheet.radius, t, targets, offset)
        slopes = weight.reshape(-1, *(1,) * (targets.ndim - 1)) * known
        own = self._added(rows, slopes) + sum(sheet.rows) * self._drawn()[t]
        leading = self._link.factors.leading
        unit = self._circuit.side(leading) / sheet.scale * columns.block_size
        scale = 2.0**self._keys.context.params.scale_bits / unit
        coefficients = subring.of_slots(columns.in_parts(own).conj() * scale)
        return [[round(c) for c in part] for part in coefficients.tolist()]

    def _added(self, rows: Array, slopes: Array) -> Array:
        """sum_i x_i s_i, in integers: a row decides how no other one is rounded."""

        def parts(some: slice) -> Array:
            factors = slopes[some].reshape(len(slopes[some]), 1, -1)
            return (rows[some][:, :, None] * factors).reshape(len(factors), -1)

        width = slopes[:1].size * rows.shape[1]
        # A row that is drawn for a batch counts up to `batches` times.
        largest = ROOM * max(1.0, self._sheet.bound) * self._sheet.batches
        units, bits = added(parts, len(rows), width, largest)
        return np.ldexp(units.astype(np.float64), -bits).reshape(rows.shape[1], *slopes.shape[1:])

    def _drawn(self) -> Array:
        """This party's noise on the mean gradient of all rounds; a repetition has the same."""
        if self._noise is None:
            self._noise = draw_noise(self._sheet, self._randomness)
        return self._noise

    def _counts(self, t: int) -> Array | None:
        """What a party's rows count in a round, by its own coins; None: all once.

        m of n rows, n / m each, m filling its last group of rows: see `model.minibatch`. A
        seeded source, which is not private, gives the same for the same t.
        """
        rows, block = int(self._rows.rows), self._sheet.columns.block_size
        taken = min(rows, block * -(-rows // (self._sheet.batches * block)))
        if not t or taken == rows:
            return None
        # Of equal words, 2^-64 of all pairs, the first is taken.
        order = np.argsort(apart(self._randomness, f"batch/{t}").words(rows), kind="stable")
        found: Array = np.zeros(rows)
        found[order[:taken]] = rows / taken
        return found

    def _rows_and_targets(self) -> tuple[Array, Array, Any]:
        """Rows and targets as they are fitted, and the rows' other terms; opens them.

        Raises:
            PolicyError: a row is longer than the sheet says, or counts more than once.
        """
        shard = opened(self._rows)
        if self._encoded is None:
            sheet = self._sheet
            x, y = shard.x, shard.y.ravel()
            if sheet.matrix:
                x = clip_rows(np.asarray(x @ np.array(sheet.matrix)), 1.0)[0]
            if sheet.signed:
                x, y = x * (2 * y - 1)[:, None], np.ones_like(y)
            if sheet.gamma:
                y = logit(sheet.gamma * y + (1 - sheet.gamma) / 2)
            y = (y / sheet.unit).reshape(-1, *sheet.columns.shape[1:])
            if not sheet.law:  # a refusal of what a unit leaves beyond 1 would tell of a target
                y = np.clip(y, -1.0, 1.0)
            # Written so that what is not a number is refused.
            fits = [
                row_norms(x) <= sheet.bound * SLACK,
                (y >= (0 if sheet.law else -SLACK)) & (y <= SLACK),
                (shard.weight >= 0) & (shard.weight <= 1),
            ]
            if len(y) != len(x) or not all(each.all() for each in fits):
                raise PolicyError(f"a row is beyond bound={sheet.bound}, or counts more than once")
            self._encoded = x, y, shard
        return self._encoded

    def _in_clear(self) -> ClearRows:
        if self._clear is None:
            sheet = self._sheet
            rows, targets, shard = self._rows_and_targets()
            offset = shard.offset * (sheet.scale / sheet.radius)
            self._clear = self._circuit(
                self._loaded,
                sheet.columns,
                self._link,
                rows,
                self._zeros(),
                self._shared.room,
                scale=sheet.scale,
                weight=shard.weight if "weight" in sheet.terms else None,
                offset=offset if "offset" in sheet.terms else None,
                targets=targets,
            )
        return self._clear

    def _zeros(self) -> Any:
        """Two fresh encryptions of zero, which never leave: see `ClearRows`.

        Parties of one process take their sums in turn: no two groups of rows take the same.
        """
        loaded, public = self._loaded, self._keys.public_key()

        def make() -> Any:
            return tuple(loaded.products([encryption(loaded, *public) for _ in range(2)]))

        return self._shared.once(loaded, "zeros", self._keys.seed, make)


def draw_noise(sheet: ModelSheet, randomness: RandomSource) -> Array:
    """One party's share for the mean gradient, shape (rounds, d), of several targets (…, d, c)."""
    shape = (sheet.rounds, *sheet.columns.shape)
    if not sheet.law:
        return np.zeros(shape)
    units = discrete_gaussian(sheet.units, math.prod(shape), randomness).astype(np.float64)
    return np.ldexp(units + between(units.size, randomness), -sheet.bits).reshape(shape)


def check(
    sheet: ModelSheet, name: str, key: str, rows: Any, terms: Terms, circuit: type[ClearRows]
) -> None:
    """Refuse what no honest plan gives, or this owner has not agreed to; key: this party's."""
    columns, parties = sheet.columns, len(sheet.roster)

    def least() -> float:
        """Twice the largest label term at the zero model, p(0) = 1/2 or another one."""
        labels = np.array([1.0] if sheet.signed else [0.0, 1.0])
        ends, middle = (
            float(np.abs(circuit.known(link, sheet.radius, 0, labels, np.zeros(1))).max())
            for link in (sheet.link, (0.5,))
        )
        return 2 * max(ends, middle) * math.sqrt(columns.num_outputs) * sheet.bound

    floors: list[Floor] = [
        ("columns", lambda: columns.num_features == rows.num_features),
        ("circuit", lambda: len(sheet.link) > 1),
        ("link", lambda: all(map(math.isfinite, (*sheet.link, sheet.gamma)))),
        ("unit", lambda: fits(sheet.unit)),
        ("scales", lambda: all(0 < s < math.inf for s in (sheet.scale, sheet.radius, sheet.bound))),
        ("scales: too large, or too small", lambda: fits(sheet.scale) and fits(sheet.radius)),
        # What a reply holds is divided by it.
        ("link: leading", lambda: fits(sheet.link[-1] * sheet.scale ** (1 - len(sheet.link)))),
        ("batches", lambda: type(sheet.batches) is int and sheet.batches > 0),
        ("lost", lambda: 0 <= sheet.lost <= max(0, parties - max(2, terms.colluders + 1))),
    ]
    if sheet.law:
        floors += [
            ("what no certificate knows", lambda: (sheet.batches, sheet.lost) == (1, 0)),
            ("offsets", lambda: "offset" not in sheet.terms),
            ("targets", lambda: (sheet.gamma, sheet.unit) == (0, 1)),
        ]
    own = of_rows(sheet, name, rows, terms, least)
    hold("this run", sheet, name, key, terms, [*floors, *own])
