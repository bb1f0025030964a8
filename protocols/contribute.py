"""Steps `commit-rows`, `contribute`, `confirm`: each party's rows and noise, encrypted once.

    commit-rows -> endorsements of all key shares  <- digest of what `contribute` will send, signed
    contribute  -> all digests                     <- {ciphertexts: indices}, data and side blobs
    confirm     -> all endorsements of these       <- {}

The joint public key is the sum that each party has added up itself (`keygen.add_public_shares`);
commitments and endorsements: `commitments`. After `confirm` every party knows that all were told
the same.

Party p encrypts x_i into its own columns and, in side column t,
    ( sum_i x_i (1/2 - y_i) + N chi_{p,t} ) / side_scale,   chi_{p,t} ~ N(0, sigma^2 / (P - t)).
The coordinator adds ciphertexts; sums over disjoint columns are unions of rows. With a
preconditioner, column 0 holds the party's `Curvature.share` and round t column t + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocols import commitments
from protocols.circuit_plan import CircuitPlan
from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.packing import Layout
from protocols.ckks.residues import Residues
from protocols.commitments import CONFIRM, ROWS, Terms
from protocols.errors import ProtocolError
from protocols.messages import Body, Exchange, Fold
from protocols.rows import RowsPlan
from protocols.secret_half import SecretHalf
from protocols.standing import Standing
from protocols.wire import unpack_from

# Has everyone contribute, and each contribution folded.
Opened = Callable[[Fold], Exchange[None]]


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


def contribution(
    context: CkksContext,
    secret: SecretHalf,
    key: Any,
    plan: RowsPlan,
    party: str,
    rows: NDArray[np.float64],
    labels: NDArray[np.float64],
    noise: NDArray[np.float64],
    curvature: NDArray[np.float64] | None = None,
) -> Body:
    """One party's shard, encrypted: what is committed to, then sent as reply to `contribute`.

    key: joint public key; rows: shape (rows, d), scaled, bias last; labels: shape (rows,) in
    {0, 1}; noise: shape (rounds, d), this party's share of the noise on the mean gradient (zeros
    without privacy); curvature: shape (d,), its `Curvature.share`, where the layout has a column
    for it.
    """
    layout = plan.layout
    units = plan.units
    data = layout.pack_rows(units.row_scale * rows, plan.party_index(party))
    linear = label_term(rows, labels) + layout.num_rows * noise
    first = np.zeros((0, layout.num_features)) if curvature is None else curvature[None, :]
    side = layout.pack_side(np.concatenate([first, linear / units.side_scale]))
    return Body(
        {"ciphertexts": list(data)}, encrypted(context, secret, key, [*data.values(), *side])
    )


def encrypted(
    context: CkksContext,
    secret: SecretHalf,
    key: Any,
    vectors: Iterable[NDArray[np.float64]],
) -> tuple[bytes, ...]:
    """A fresh ciphertext of each vector of slots, packed."""
    both = context.primes * 2
    return tuple(
        rns.pack(secret.encrypt(key, slots, f"{ROWS.open}/{k}"), both)
        for k, slots in enumerate(vectors)
    )


# -- coordinator half -----------------------------------------------------------------------------


def opened(
    plan: CircuitPlan, seed: bytes, keys: Body, standing: Standing, fold: Fold
) -> Exchange[None]:
    """Have every party commit to its contribution, open it, and see that all were told the same.

    keys: everyone's endorsement of the key shares.

    Raises:
        ProtocolError: a party opened another contribution than it committed to; names it.
    """
    terms = Terms.of(plan, ROWS, seed)
    endorsements = yield from commitments.opened(terms, keys, fold)
    yield from standing.ask(CONFIRM, endorsements, [], plan.ckks.ring_dim)


def collect(
    evaluator: Evaluator, plan: PackedPlan, contributions: Opened
) -> Exchange[tuple[list[EncryptedVector], list[EncryptedVector]]]:
    """Rows of all parties, group by group, and their summed side ciphertexts."""
    sums = _Contributions(plan, evaluator.context)
    yield from contributions(sums.fold)
    data, side = sums.data, sums.side
    return grouped(evaluator, _vectors(evaluator, data)), _vectors(evaluator, side)


class _Contributions:
    """Running sums of data and side ciphertexts by index: parties fill columns of their own."""

    def __init__(self, plan: PackedPlan, context: CkksContext) -> None:
        self._names, self._layout = plan.names, plan.layout
        self._primes, self._ring_dim = context.primes * 2, context.params.ring_dim
        self.data: dict[int, Residues] = {}
        self.side: dict[int, Residues] = {}

    def fold(self, name: str, body: Body) -> Body:
        """Add one party's ciphertexts; returns the reply without them."""
        held = list(self._layout.ciphertexts_of(self._names.index(name)))
        if body.meta.get("ciphertexts") != held or len(body.blobs) != (
            len(held) + self._layout.num_side_ciphertexts
        ):
            raise ProtocolError(
                f"party {name!r} sent other ciphertexts than its rows need", culprit=name
            )
        for position in range(len(body.blobs)):
            part = unpack_from(body, position, self._primes, self._ring_dim, name)
            sums, index = (
                (self.data, held[position])
                if position < len(held)
                else (self.side, position - len(held))
            )
            sums[index] = rns.add(sums[index], part, self._primes) if index in sums else part
        return Body(body.meta)


def grouped(evaluator: Evaluator, data: Sequence[EncryptedVector]) -> list[EncryptedVector]:
    """The data ciphertexts of a group of rows as the parts of one vector."""
    parts = evaluator.layout.num_parts
    return [evaluator.join(data[k : k + parts]) for k in range(0, len(data), parts)]


def _vectors(evaluator: Evaluator, sums: Mapping[int, Residues]) -> list[EncryptedVector]:
    context = evaluator.context
    return [evaluator.wrap(context.ciphertext(np.split(sums[index], 2))) for index in sorted(sums)]
