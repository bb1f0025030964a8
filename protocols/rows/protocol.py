"""The protocol `encrypted-rows`: parties encrypt rows, or sums over them, once; the model opens.

The coordinator evaluates gradients and updates on ciphertexts, has the parties refresh them when
levels run out, and has the last one decrypted. It learns the model and nothing before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pkgutil import resolve_name
from typing import Any
from typing import Protocol as Interface

from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.evaluation import CkksContext, unload
from protocols.exchange.messages import Exchange
from protocols.names import ENCRYPTED_ROWS
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.kinds import circuit_kind_of
from protocols.plan.protocol import Protocol, Step, Watch, Weights
from protocols.steps import contribute, decrypt, keygen, refresh, second_moment, workers
from protocols.steps.confirmed import View
from protocols.steps.contribute import Opened
from protocols.steps.keygen import JointKeys
from protocols.steps.refresh import Refresh
from protocols.steps.rounds import noting
from protocols.steps.survivors import Survivors

_KEYS = "public key material, made from your key share"


def chunks(plan: CircuitPlan, party: int) -> Sequence[int]:
    """Rotation keys in each message."""
    _ = party
    return [len(indices) for indices in plan.rotation_chunks]


def _encrypted(plan: Any, party: int) -> Sequence[int]:
    """Ciphertexts of a party's rows, or of its sums."""
    if plan.kind == "gram":
        return (plan.task.num_ciphertexts,)
    return (len(plan.layout.ciphertexts_of(party)) + plan.layout.num_side_ciphertexts,)


WITH_KEYS: Sequence[Any] = [
    resolve_name("protocols.steps.cover"),
]
"""What some plans have once there are keys, each with its STEPS and the coordinator's `ask`."""
CEREMONY = (
    *second_moment.STEPS,
    Step(
        "commit-keys",
        keygen.commit,
        "keys",
        "a digest of public key material, signed",
        alike=False,
        told="all seeds",
        sends="digest of what `keys` will send, signed",
    ),
    Step(
        "keys",
        keygen.open_keys,
        "keys",
        _KEYS,
        told="all digests",
        sends="b_p = -a s_p + e; h0 = -a' u_p + P s_p g + e0 and h1 = a' s_p + e1; "
        "the set of digests, signed",
        learns="nothing (RLWE)",
    ),
    Step(
        "public-shares",
        keygen.add_shares,
        "keys",
        "nothing: you add up the joint public key from everyone's shares",
        count=lambda plan: len(plan.member_chunks),
        carries=lambda plan, party: [len(names) for names in plan.member_chunks],
        told="the b_p of some parties",
        sends="nothing; it checks and adds them",
        learns="the joint public key is public",
    ),
    Step(
        "rotations",
        keygen.rotate,
        "keys",
        _KEYS,
        count=lambda plan: len(plan.rotation_chunks),
        carries=chunks,
        told="nothing new: indices follow from the plan",
        sends="one b_p per rotation",
        learns="nothing (RLWE)",
    ),
    Step(
        "relinearise",
        keygen.relinearise,
        "keys",
        _KEYS,
        committed=True,
        endorsed=False,
        told="H0, H1: the sums of h0, h1",
        sends="t_p = s_p H0 + (u_p - s_p) H1 + e2; u_p is forgotten",
        learns="nothing (RLWE, circular), if H0 and H1 are these sums",
    ),
    *(step for part in WITH_KEYS for step in part.STEPS),
)
"""Before any row is used."""
DECRYPT = Step(
    "decrypt",
    decrypt.share,
    "decrypt",
    "a noisy share of one decryption",
    repeats=True,
    opens=True,
    committed=True,
    told="c1 of the masked model; endorsements of the last refresh",
    sends="flooded partial decryption",
    learns="coordinator: the model",
)
STEPS = (
    *CEREMONY,
    Step(
        "commit-rows",
        contribute.commit,
        "encrypt",
        "a digest of your encrypted rows, signed",
        shows_rows=True,
        carries=_encrypted,
        told="who signed which set of digests",
        sends="digest of what `contribute` will send, signed",
    ),
    Step(
        "contribute",
        contribute.open_rows,
        "encrypt",
        "your rows, encrypted under the joint key",
        noisy=True,
        carries=_encrypted,
        told="all digests",
        sends="encrypted rows or Gram sums, with noise; the set of digests, signed",
        learns="nothing (RLWE)",
    ),
    Step(
        "confirm",
        contribute.confirm,
        "encrypt",
        "nothing: you see that all parties were told the same",
        repeats=True,
        silent=True,
        told="who signed which set of digests",
        learns="that all were told the same",
    ),
    Step(
        "refresh",
        refresh.share,
        "refresh",
        "a masked share of a ciphertext (no one learns a value that the mask hides)",
        count=lambda plan: len(plan.refreshes),
        repeats=True,
        committed=True,
        carries=lambda plan, party: plan.refreshes,
        told="c1 of the gradient's terms; endorsements of what was opened last",
        sends="masked decryption share, re-encryption share of T(mask)",
        learns="nothing (masks of some 175 bits)",
    ),
    DECRYPT,
)


class Circuit(Interface):
    """What a kind of plan computes of what parties encrypt (`CircuitPlan.place`)."""

    def evaluator(self, context: CkksContext) -> Evaluator:
        """Evaluates it; the evaluation keys are loaded."""
        ...

    def collect(self, evaluator: Evaluator, contributions: Opened) -> Exchange[Any]:
        """The parties' ciphertexts, summed, for `train`."""
        ...

    def train(
        self,
        evaluator: Evaluator,
        encrypted: Any,
        refresh: Refresh,
        on_iteration: Callable[[int], None],
    ) -> Exchange[EncryptedVector]:
        """Encrypted weights over the plan's unit, zero in all slots but theirs."""
        ...


def circuit_of(plan: CircuitPlan) -> Circuit:
    """The circuit of a plan."""
    found: Circuit = circuit_kind_of(plan).circuit(plan)
    return found


def joint_keys(
    context: CkksContext,
    plan: CircuitPlan,
    seed: bytes,
    seeds: Mapping[str, str],
    watch: Watch,
    view: View,
) -> Exchange[JointKeys]:
    """What comes before any row is used: the sum that whitens rows, the keys, and shares of them.

    Raises:
        ProtocolError: a party failed or lied; `culprit` names it.
    """
    yield from second_moment.ask(plan, watch)
    watch.on_phase("keys")
    keys = yield from keygen.ceremony(context, plan, seed, seeds, view)
    for part in WITH_KEYS:
        yield from part.ask(plan, seed, watch)
    return keys


def coordinate(
    plan: CircuitPlan, seed: bytes, seeds: Mapping[str, str], watch: Watch
) -> Exchange[Weights]:
    """The coordinator's half, from the agreement to the released weights.

    Raises:
        ProtocolError: a party failed or lied; `culprit` names it.
    """
    view = View(seed)
    return (yield from noting(view, _coordinate(plan, seed, seeds, watch, view), PROTOCOL.is_alike))


def _coordinate(
    plan: CircuitPlan, seed: bytes, seeds: Mapping[str, str], watch: Watch, view: View
) -> Exchange[Weights]:
    context, circuit = CkksContext(plan.ckks, plan.session), circuit_of(plan)
    try:
        keys = yield from joint_keys(context, plan, seed, seeds, watch, view)

        watch.on_phase("encrypt")
        evaluator = circuit.evaluator(context)
        survivors = Survivors(plan, seed, view, watch.on_missing)
        if watch.engine is not None and plan.kind in workers.KINDS:
            evaluator = workers.SpreadEvaluator(evaluator, watch.engine, seed, keys)
        opened = partial(contribute.opened, plan, seed, keys.endorsements, survivors)
        encrypted = yield from circuit.collect(evaluator, opened)

        watch.on_phase("train")
        key: Any = keygen.public_key(context, seed, keys.public_b)
        del keys  # their halves are large, and loaded, or with the evaluator
        numbers = count()

        def fresh(vectors: Sequence[EncryptedVector]) -> Exchange[tuple[EncryptedVector, ...]]:
            step = next(numbers)
            after = yield from refresh.refresh(evaluator, plan, seed, step, key, vectors, survivors)
            watch.on_refresh(vectors, after)
            return after

        heads = yield from circuit.train(evaluator, encrypted, fresh, watch.on_iteration)

        watch.on_phase("decrypt")
        return plan.decode((yield from decrypt.release(evaluator, plan, heads, survivors)))
    finally:
        unload(context.tag)


PROTOCOL = Protocol(ENCRYPTED_ROWS, STEPS, coordinate, decrypt.release_error_std)
