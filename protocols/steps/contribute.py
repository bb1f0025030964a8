"""Steps `commit-rows`, `contribute`, `confirm`: each party's rows and noise, encrypted once.

    commit-rows -> endorsements of all key shares  <- digest of what `contribute` will send, signed
    contribute  -> all digests                     <- {ciphertexts: indices}, data and side blobs
    confirm     -> all endorsements of these       <- {}

The joint public key is the sum that each party has added up itself (`keygen.add_public_shares`);
commitments and endorsements: `commitments`. After `confirm` every party knows that all were told
the same.

Party p encrypts x_i into its own columns and, in side column t,
    ( sum_i x_i (p(0) - y_i) + N chi_{p,t} ) / side_scale,   chi_{p,t} ~ N(0, sigma^2 / (P - t)).
The coordinator adds ciphertexts; sums over disjoint columns are unions of rows. With a
preconditioner, column 0 holds the party's `Curvature.share` and round t column t + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from protocols.ckks import residues as rns
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.residues import Residues
from protocols.errors import PolicyError, ProtocolError
from protocols.exchange.messages import Body, Exchange, Fold
from protocols.exchange.wire import unpack_from
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.protocol import Request
from protocols.steps import commitments
from protocols.steps.endorsed import CONFIRM, ROWS
from protocols.steps.secret_half import CircuitHalf
from protocols.steps.survivors import Survivors

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


# -- party half -----------------------------------------------------------------------------------


def check_outputs(plan: Any, shape: tuple[int, ...]) -> None:
    """Refuse targets of another shape than the plan's; shape: of one row's, () or (outputs,).

    Raises:
        PolicyError: names the model.
    """
    outputs = () if plan.outputs is None else (plan.outputs,)
    if shape != outputs:
        raise PolicyError(
            f"model={plan.model!r} of the plan does not predict what this party's rows have: "
            f"targets of shape {shape}, {outputs} in the plan"
        )


def commit(half: CircuitHalf, request: Request) -> Body:
    """Reply to `commit-rows`: encrypts what is sent with `contribute`."""
    half.keys.confirm(request.body)
    return half.rows.commit(half.contribution())


def open_rows(half: CircuitHalf, request: Request) -> Body:
    """Reply to `contribute`."""
    return half.rows.open(request.body)


def confirm(half: CircuitHalf, request: Request) -> Body:
    """Reply to `confirm`; its repetition has nothing left to check."""
    if request.kind == CONFIRM:
        half.rows.confirm(request.body)
    return Body()


# -- coordinator half -----------------------------------------------------------------------------


def opened(
    plan: CircuitPlan, seed: bytes, keys: Body, survivors: Survivors, fold: Fold
) -> Exchange[None]:
    """Have every party commit to its contribution, open it, and see that all were told the same.

    keys: everyone's endorsement of the key shares.

    Raises:
        ProtocolError: a party opened another contribution than it committed to; names it.
    """
    terms = ROWS.terms(seed, plan.roster)
    endorsements = yield from commitments.opened(terms, keys, fold, ROWS.commit)
    yield from survivors.ask(CONFIRM, endorsements, [], plan.ckks.ring_dim)


def collect(
    evaluator: Evaluator, plan: PackedPlan, contributions: Opened
) -> Exchange[tuple[Any, list[EncryptedVector]]]:
    """Rows of all parties, as `Evaluator.hold` has them, and their summed side ciphertexts."""
    sums = _Contributions(plan, evaluator)
    yield from contributions(sums.fold)
    side = [evaluator.wrap(ct) for ct in evaluator.read(sums.side)]
    return evaluator.hold(sums.data), side


class _Contributions:
    """Running sums of data and side ciphertexts by index: parties fill columns of their own."""

    def __init__(self, plan: PackedPlan, evaluator: Evaluator) -> None:
        context = evaluator.context
        self._names, self._layout = plan.names, plan.layout
        self._primes, self._ring_dim = context.primes * 2, context.params.ring_dim
        self.data = evaluator.store()
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
