"""Step `contribute`: each party's rows, label term and noise, encrypted once.

    contribute -> joint public key (b half)   <- {ciphertexts: indices}, data blobs, side blobs

Party p encrypts x_i into its own columns and, in side column t,
    ( sum_i x_i (1/2 - y_i) + N chi_{p,t} ) / side_scale,   chi_{p,t} ~ N(0, sigma^2 / (P - t)).
The coordinator adds ciphertexts; sums over disjoint columns are unions of rows. With a
preconditioner, column 0 holds the party's `Curvature.share` and round t column t + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.packing import Layout
from protocols.ckks.residues import Residues
from protocols.errors import MessageError, ProtocolError
from protocols.keygen import public_key
from protocols.messages import Body, Exchange, to_everyone
from protocols.rows import RowsPlan
from protocols.secret_half import SecretHalf
from protocols.wire import unpack_from

STEP = "contribute"


class PackedPlan(Protocol):
    """A plan whose parties encrypt rows and side columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """Parties in order."""
        ...

    @property
    def layout(self) -> Layout:
        """Packing."""
        ...


def label_term(rows: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum_i x_i (1/2 - y_i), shape (num_features,)."""
    return rows.T @ (0.5 - labels)


# -- party half -----------------------------------------------------------------------------------


def answer_contribute(
    context: CkksContext,
    secret: SecretHalf,
    plan: RowsPlan,
    party: str,
    seed: bytes,
    request: Body,
    rows: NDArray[np.float64],
    labels: NDArray[np.float64],
    noise: NDArray[np.float64],
    curvature: NDArray[np.float64] | None = None,
) -> Body:
    """Encrypt one party's shard.

    rows: shape (rows, d), scaled, bias last; labels: shape (rows,) in {0, 1}; noise: shape
    (rounds, d), this party's share of the noise on the mean gradient (zeros without privacy);
    curvature: shape (d,), its `Curvature.share`, where the layout has a column for it.

    Raises:
        MessageError: the request holds no well-formed public key.
    """
    if len(request.blobs) != 1:
        raise MessageError("the step `contribute` carries exactly one blob")
    b = rns.unpack(request.blobs[0], context.primes, context.params.ring_dim)
    key = public_key(context, seed, b)
    layout = plan.layout
    units = plan.units
    data = layout.pack_rows(units.row_scale * rows, plan.party_index(party))
    linear = label_term(rows, labels) + layout.num_rows * noise
    first = np.zeros((0, layout.num_features)) if curvature is None else curvature[None, :]
    side = layout.pack_side(np.concatenate([first, linear / units.side_scale]))
    return Body({"ciphertexts": list(data)}, encrypted(context, secret, key, [*data.values(), *side]))


def encrypted(
    context: CkksContext,
    secret: SecretHalf,
    key: Any,
    vectors: Iterable[NDArray[np.float64]],
) -> tuple[bytes, ...]:
    """A fresh ciphertext of each vector of slots, packed."""
    both = context.primes * 2
    return tuple(
        rns.pack(secret.encrypt(key, slots, f"{STEP}/{k}"), both)
        for k, slots in enumerate(vectors)
    )


# -- coordinator half -----------------------------------------------------------------------------


def collect(
    evaluator: Evaluator, plan: PackedPlan, public_b: Residues
) -> Exchange[tuple[list[EncryptedVector], list[EncryptedVector]]]:
    """Rows of all parties, group by group, and their summed side ciphertexts."""
    context = evaluator.context
    request = Body(blobs=(rns.pack(public_b, context.primes),))
    sums = _Contributions(plan, context)
    data, side = sums.of((yield to_everyone(STEP, plan.names, request, sums.fold)))
    return grouped(evaluator, _vectors(evaluator, data)), _vectors(evaluator, side)


class _Contributions:
    """Running sums of data and side ciphertexts by index: parties fill columns of their own."""

    def __init__(self, plan: PackedPlan, context: CkksContext) -> None:
        self._names, self._layout = plan.names, plan.layout
        self._primes, self._ring_dim = context.primes * 2, context.params.ring_dim
        self._waiting = dict.fromkeys(plan.names)
        self._data: dict[int, Residues] = {}
        self._side: dict[int, Residues] = {}

    def fold(self, name: str, body: Body) -> Body:
        """Add one party's ciphertexts; returns the reply without them."""
        held = list(self._layout.ciphertexts_of(self._names.index(name)))
        if body.meta.get("ciphertexts") != held or len(body.blobs) != (
            len(held) + self._layout.num_side_ciphertexts
        ):
            raise ProtocolError(
                f"party {name!r} sent other ciphertexts than its rows need", culprit=name
            )
        del self._waiting[name]
        for position in range(len(body.blobs)):
            part = unpack_from(body, position, self._primes, self._ring_dim, name)
            sums, index = (
                (self._data, held[position])
                if position < len(held)
                else (self._side, position - len(held))
            )
            sums[index] = rns.add(sums[index], part, self._primes) if index in sums else part
        return Body(body.meta)

    def of(self, replies: Mapping[str, Body]) -> tuple[dict[int, Residues], dict[int, Residues]]:
        """Both sums, once all replies are there; folds those that the driver did not."""
        for name in tuple(self._waiting):
            self.fold(name, _reply_of(replies, name))
        return self._data, self._side


def grouped(evaluator: Evaluator, data: Sequence[EncryptedVector]) -> list[EncryptedVector]:
    """The data ciphertexts of a group of rows as the parts of one vector."""
    parts = evaluator.layout.num_parts
    return [evaluator.join(data[k : k + parts]) for k in range(0, len(data), parts)]


def _vectors(evaluator: Evaluator, sums: Mapping[int, Residues]) -> list[EncryptedVector]:
    context = evaluator.context
    return [evaluator.wrap(context.ciphertext(np.split(sums[index], 2))) for index in sorted(sums)]


def _reply_of(replies: Mapping[str, Body], name: str) -> Body:
    if name not in replies:
        raise ProtocolError(f"no reply from party {name!r}", culprit=name)
    return replies[name]
