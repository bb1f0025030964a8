"""A party of the protocol `encrypted-model`: its rows in the clear, beside its key share."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.data.shard import Shard
from parties.encrypted_rows import EncryptedRowsParty
from parties.kernel.clear_rows import CIRCUITS, ClearRows
from parties.kernel.columns import Columns
from parties.kernel.pads import Pads
from parties.kernel.private import kept_like, opened
from parties.kernel.sums.integer_sums import added
from parties.party_protocol import Seal
from protocols import keygen
from protocols.ckks import residues as rns
from protocols.ckks import subring
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.factored import Link
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.ckks.residues import Residues
from protocols.ckks.shared_keys import ENCODED_ROWS, Chunk, chunk_of, loaded_context, once
from protocols.errors import PolicyError
from protocols.labels import repeated
from protocols.messages import Body
from protocols.model_plan import ModelPlan
from protocols.privacy.randomness import ExpandedRandomness, RandomSource

ROOM = 16.0
_KEYS_DUE = "not all evaluation keys are here yet"


class EncryptedModelParty(EncryptedRowsParty):
    """A `protocols.model_gradient.ModelHalf`; see `EncryptedRowsParty` for its key share.

    elements: labels of the random elements that are the second polynomials of the current point.
    """

    plan: ModelPlan

    def __init__(
        self,
        plan: ModelPlan,
        name: str,
        shard: Shard,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
    ) -> None:
        super().__init__(plan, name, shard, randomness, signing_key)
        self.elements: list[str] = []
        self._evaluation: list[Chunk] = []
        self._shared: CkksContext | None = None
        self._public: Any = None
        self._asked: list[Any] = []
        self._noise: NDArray[np.float64] | None = None
        self._clear: ClearRows | None = None
        ENCODED_ROWS.enter(self)

    def begin(self, seed: bytes) -> None:
        """Make the key share and the pads' key; seed: the joint one."""
        super().begin(seed)
        self.pads = Pads(self.plan.roster, self.name, seed, self._signing_key)

    def take_keys(self, index: int, keys: Sequence[Residues]) -> None:
        """Keep some of the evaluation keys; once all are there, load them."""
        self._evaluation[index:] = [chunk_of(keys)]
        if index == len(self.plan.rotation_chunks):
            self._load()

    def _load(self) -> None:
        def load(context: CkksContext) -> None:
            (h1, t), *rest = (chunk.halves for chunk in self._evaluation)
            halves = (half for chunk in rest for half in chunk)
            rotations = dict(zip(self.plan.rotations, halves, strict=True))
            keygen.load_keys(context, self.seed, (h1, t), rotations)

        plan = self.plan
        self._shared = loaded_context(plan.ckks, plan.session, self._evaluation, load)

    def _share_public_key(self) -> None:
        """The joint public key, which parties of one process have once."""
        if self._shared is None:
            raise PolicyError(_KEYS_DUE)
        own, seed, context = self.public_b, self.seed, self.context
        name = (sha256(own.tobytes()).digest(), seed)

        def make() -> tuple[Residues, Any]:
            return own, keygen.public_key(context, seed, own)

        self.public_b, self._public = once(self._shared, "public key", name, make)

    def gradient(self, t: int, label: str, point: Sequence[Residues]) -> list[list[Residues]]:
        """(c0, c1) of each part of the gradient at a point, noise included; see `model_gradient`.

        t: the round; label: of the step; point: c0 of each part, none at zero weights.

        Raises:
            PolicyError: a repetition at another point: the difference of both has no noise.
        """
        self._keep_to(label, point)
        plan, context, layout = self.plan, self.context, self.plan.layout
        low, n = context.primes[:REFRESH_TOWERS], plan.ckks.ring_dim
        if self._public is None:
            self._share_public_key()
        opened(self._shard)
        nothing: Residues = np.zeros((len(low), n), np.uint64)
        sums = [[nothing] * 2] * layout.num_parts
        counts = plan.weights_in(t, self._shard.rows, self._randomness)
        if point:
            rows = self._rows_in_clear()
            if counts is not None:
                rows = rows.only(np.flatnonzero(counts), counts[counts > 0])
            sums = rows.gradient(self._rotated(rows, point))
        parts: list[list[Residues]] = self.secret.encrypt_onto(self._public, sums, label)
        own, period, stream = self.own_terms(t, counts), layout.period, ExpandedRandomness()
        # Parties that were not asked the same have pads that do not cancel.
        common = f"{self.rounds.view.digest}/{label}"
        for part, polynomials in enumerate(parts):
            pad = self.pads.pad(f"{common}/{part}", low, 2 * period, self.missing)
            inner = rns.add(pad, subring.reduced(own[part], low), low)
            hidden = subring.kernel(low, n, period, stream)
            hidden = rns.add(hidden, subring.embedded(inner, low, n), low)
            polynomials[0] = rns.add(polynomials[0], hidden, low)
        return parts

    def _rotated(self, rows: ClearRows, point: Sequence[Residues]) -> list[list[Any]]:
        """See `ClearRows.rotated`; parties of one process share it."""

        def make() -> list[list[Any]]:
            elements = (self.context.uniform_polynomial(self.seed, e) for e in self.elements)
            return rows.rotated([[c0, c1] for c0, c1 in zip(point, elements, strict=True)])

        assert self._shared is not None  # noqa: S101 (rows have it)
        return once(self._shared, "point", (*self._asked[1], *self.elements), make)

    def _keep_to(self, label: str, point: Sequence[Residues]) -> None:
        """A round is answered at one point."""
        asked = [repeated(label), [sha256(c0.tobytes()).hexdigest() for c0 in point]]
        if repeated(label) != label and asked != self._asked:
            raise PolicyError(f"{label!r} is not for the point that {asked[0]!r} was asked at")
        self._asked = asked

    def own_terms(self, t: int, counts: NDArray[np.float64] | None = None) -> list[list[int]]:
        """(sum_i u_i x_i (p(0) - y_i) + N chi_t) / A of each part, as coefficients of the subring.

        One B-th of it: sums over columns make B of that. p(0) - y stands for `plan.known_slopes`;
        counts: beside u, of `plan.weights_in`.
        """
        plan, layout, shard = self.plan, self.plan.layout, self._shard
        rows, targets = plan.encode(shard.x, shard.y)
        weight = shard.weight if counts is None else shard.weight * counts
        weight = weight.reshape(-1, *(1,) * (targets.ndim - 1))
        slopes = weight * plan.known_slopes(t, shard.offset, targets)
        own = self._added(rows, slopes) + plan.num_rows * self._drawn()[t]
        scale = 2.0**plan.ckks.scale_bits / (plan.units.side_scale * layout.block_size)
        coefficients = subring.of_slots(Columns.of(layout).in_parts(own).conj() * scale)
        return [[round(c) for c in part] for part in coefficients.tolist()]

    def _added(self, rows: NDArray[np.float64], slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        """sum_i x_i s_i of the label terms, in integers: a row decides how no other one is rounded.

        |x| is at most `bound`, and no slope of a link on its interval leaves [-ROOM, ROOM].
        """
        bound = max(1.0, self._shard.schema.norm_bound)

        def parts(some: slice) -> NDArray[np.float64]:
            factors = slopes[some].reshape(len(slopes[some]), 1, -1)
            return (rows[some][:, :, None] * factors).reshape(len(factors), -1)

        width = slopes[:1].size * rows.shape[1]
        total = added(parts, len(rows), width, ROOM * bound).values
        return total.reshape(rows.shape[1], *slopes.shape[1:])

    def _drawn(self) -> NDArray[np.float64]:
        """This party's privacy noise of all rounds."""
        if self._noise is None:
            self._noise = self.plan.draw_noise(self._randomness)
        return self._noise

    def _rows_in_clear(self) -> ClearRows:
        if self._clear is None:
            plan = self.plan
            if self._shared is None:
                raise PolicyError(_KEYS_DUE)
            rows, targets = plan.encode(self._shard.x, self._shard.y)
            units, shard, terms = plan.units, self._shard, plan.row_terms
            offset = shard.offset * (units.row_scale / units.weight_unit)
            clear = CIRCUITS[plan.circuit](
                self._shared,
                Columns.of(plan.layout),
                Link.of(units.link.coefficients),
                rows,
                self._zeros(),
                ENCODED_ROWS.share,
                scale=units.row_scale,
                weight=shard.weight if "weight" in terms else None,
                offset=offset if "offset" in terms else None,
                targets=targets,
            )
            self._clear = kept_like(shard, clear)
        return self._clear

    def _zeros(self) -> Any:
        """Two fresh encryptions of zero, which never leave: see `ClearRows`.

        Parties of one process take their sums in turn: no two groups of rows take the same.
        """
        shared, context, zero = self._shared, self.context, np.zeros(1)
        assert shared is not None  # noqa: S101 (rows have it)

        def make() -> Any:
            fresh = [context.encrypt(self._public, zero) for _ in range(2)]
            return tuple(shared.products([context.polynomials_of(ct) for ct in fresh]))

        return once(shared, "zeros", self.seed, make)

    def erase(self) -> None:
        """Erase the key share, what others share with it, noise and encoded rows."""
        super().erase()
        self._noise = self._clear = self._shared = self._public = None
        self._evaluation = []
        ENCODED_ROWS.leave(self)
        if self.secret is not None:
            self.pads.erase()

    # -- going on in another process --------------------------------------------------------------

    def state(self, seal: Seal) -> Body:
        """What the encrypted-rows party has, pads, evaluation keys, and noise, sealed."""
        whole = super().state(seal)
        if not whole.blobs:
            return whole
        own = self.pads.state(seal)
        drawn = b"" if self._noise is None else seal(self._noise.tobytes())
        keys = tuple(half.tobytes() for chunk in self._evaluation for half in chunk.halves)
        model = {
            "rows_blobs": len(whole.blobs),
            "pads": [len(own.blobs), dict(own.meta)],
            "elements": self.elements,
            "asked": self._asked,
            "keys": [len(chunk.halves) for chunk in self._evaluation],
        }
        blobs = (*whole.blobs, *own.blobs, drawn, *keys)
        return Body({**whole.meta, "model": model}, blobs)

    def restore(self, state: Body, unseal: Seal) -> None:
        """Inverse of `state`."""
        if not state.blobs:
            return
        meta = dict(state.meta)
        model = meta.pop("model")
        rows, (count, own) = model["rows_blobs"], model["pads"]
        super().restore(Body(meta, state.blobs[:rows]), unseal)
        rest = list(state.blobs[rows:])
        self.pads = Pads(self.plan.roster, self.name, self.seed, self._signing_key)
        self.pads.restore(Body(own, tuple(rest[:count])), unseal)
        drawn, *keys = rest[count:]
        if drawn:
            shape = (self.plan.rounds, *self.plan.fitted_shape)
            self._noise = np.frombuffer(unseal(drawn)).reshape(shape)
        self.elements, self._asked = list(model["elements"]), list(model["asked"])
        n, halves = self.plan.ckks.ring_dim, iter(keys)
        self._evaluation = [
            chunk_of([np.frombuffer(next(halves), np.uint64).reshape(-1, n) for _ in range(held)])
            for held in model["keys"]
        ]
        if len(self._evaluation) == 1 + len(self.plan.rotation_chunks):
            self._load()
