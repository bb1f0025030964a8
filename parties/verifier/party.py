"""One data owner as a state machine: bytes in, bytes out, no sockets and no Flower.

`Party.handle` is the same in a simulation, in a spawned process and behind a party agent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.account import Account, hold
from parties.coins import Coins
from parties.kernel.private import HiddenError
from parties.kernel.run import Run
from parties.policy import REFUSED, Policy, PublicError, Reason, ToldError, public
from parties.verifier.party_protocol import PartyProtocol, half_of
from parties.verifier.recompute import recompute
from protocols.errors import (
    CohortError,
    DataError,
    MessageError,
    ParameterError,
    PolicyError,
    ProtocolError,
)
from protocols.exchange.messages import (
    DEFAULT_SIZE_CAP,
    UNHEARD,
    Body,
    Envelope,
    address_of,
    decode,
    digest,
    heard,
    public_bytes,
    signed_head,
    whole,
)
from protocols.exchange.relayed import BEHIND, MORE, RELAY, parted
from protocols.names import COORDINATOR
from protocols.plan import kinds
from protocols.plan.kinds import plan_from_dict
from protocols.plan.protocol import BEFORE, protocol_of
from protocols.plan.run_plan import Member, RunPlan
from protocols.privacy.laws import RandomSource, SystemRandomness
from protocols.privacy.loss.ledger import Ledger
from protocols.steps import agree
from protocols.steps.finish import weights_of
from protocols.steps.replica import HEAD_BYTES, Replica
from protocols.steps.witnesses import check_confirmed

if TYPE_CHECKING:
    from parties.reader.shard import Shard
    from parties.reader.views import Views
    from parties.verifier.objectives import OpenContributor
    from protocols.privacy.certificates.mechanism import Mechanism

log = logging.getLogger(__name__)


class Party:
    """Holds one shard, one key share and one policy; answers the coordinator.

    Security: signature, session and step order are checked before anything else is read; each
    step is answered once, and a repeated request gets the cached bytes. Every reply carries the
    head of all requests of the session, refused ones too: no log without one of them fits it. The
    key share is erased at the last step, or by `close`.

    Privacy: whatever goes wrong once rows are open (`parties.kernel.private`), of any type, has one
    text, counts as spent and ends the session, so that a coordinator learns nothing from words,
    kind or absence of a reply and cannot ask again. All other refusals follow from public figures
    alone (`policy.public` stands where they are made), or have one of the sentences of
    `parties.policy`.

    run: its rows, key, randomness and account, behind their boundary; coordinator_key: the
    coordinator's verification key (hex).

    Privacy: whatever epsilon a plan claims is recomputed from this party's own norm bound before
    any key is made (`parties.verifier.recompute`), be there limits and a ledger or not.
    """

    def __init__(
        self,
        *,
        run: Run,
        coordinator_key: str,
        policy: Policy,
        size_cap: int = DEFAULT_SIZE_CAP,
        open_contributor: OpenContributor | None = None,
    ) -> None:
        self.run, self.name = run, run.name
        self._coordinator_key = coordinator_key
        self._policy = policy
        self._size_cap = size_cap
        self._open_contributor = open_contributor
        # Digest of the plan that its owner has accepted, "" until then; None: nobody is asked.
        self.consented: str | None = None
        self._session: str | None = None
        # A plan is agreed in the second of these.
        self._sequence: tuple[str, ...] = BEFORE[:2]
        self._answered = 0
        self._repeated: list[str] = []
        # Step, request's digest, and the reply: what is signed, and a body that shares its blobs
        # with whatever else the party keeps of them.
        self._last: tuple[str, str, bytes, Body] | None = None
        self._heard = dict[str, None]()  # digests of the session's requests, a resent one once
        self.seen = UNHEARD
        self._plan: RunPlan | None = None
        self._replica: Replica | None = None
        self._behind = ""  # head that a new replica has to come to; empty: it is there
        self._next = b""  # old request that it follows once the replies before it are there
        self._half: PartyProtocol | None = None
        self._handlers: dict[str, Callable[[Body], Body]] = {
            "enrol": self._enrol,
            "agree": self._agree,
            "reveal": self._reveal,
            "finish": self._finish,
        }

    @classmethod
    def of(
        cls,
        *,
        name: str,
        shard: Shard,
        signing_key: Ed25519PrivateKey,
        coordinator_key: str,
        policy: Policy,
        randomness: RandomSource,
        size_cap: int = DEFAULT_SIZE_CAP,
        ledger: Ledger | None = None,
        dataset: str = "",
        coins: Coins | None = None,
        open_contributor: OpenContributor | None = None,
        views: Views | None = None,
    ) -> Party:
        """With rows, key and account in this process.

        name: as in the plan; shard: encoded private rows; signing_key: this party's identity;
        randomness: source of the privacy noise; ledger: record of what earlier runs have spent,
        None keeps none; dataset: the owner's name of the data in the ledger; coins: by which rows
        are held back, None: tossed for this run and forgotten; open_contributor: what it
        contributes to a run of the secure-aggregation protocol; views: of the same rows, None: it
        answers no plan over them.
        """
        run = Run(
            name=name,
            rows=shard,
            signing_key=signing_key,
            randomness=randomness,
            account=Account(ledger, dataset),
            coins=coins or Coins(SystemRandomness()),
            terms=policy.terms(),
            views=views,
        )
        return cls(
            run=run,
            coordinator_key=coordinator_key,
            policy=policy,
            size_cap=size_cap,
            open_contributor=open_contributor,
        )

    def handle(self, data: bytes) -> bytes:
        """Answer one message; a refusal is a signed reply as well.

        Raises:
            MessageError: the message is not from the coordinator (nothing is answered).
        """
        data, relayed = parted(data)
        request = decode(data, self._coordinator_key, size_cap=self._size_cap)
        name = digest(data)
        if self._last and self._last[:2] == (request.step, name):
            return whole(*self._last[2:])
        is_ahead = request.step == RELAY  # no request of the run
        try:
            with self.run.private:
                with public():
                    self._check_address(request)
                if not is_ahead:
                    self._hear(name)
                if is_ahead:
                    body = self._ahead(relayed or (), more=bool(request.body.meta.get(MORE)))
                else:
                    body = self._answer(request, name, relayed)
        except HiddenError as hidden:
            _tell_owner(self.name, request.step, hidden.__cause__)
            self.close()
            body = Body({"error": REFUSED})
        except KeyboardInterrupt:
            self.close()
            raise
        except CohortError as error:
            log.warning("%s refuses %s: %s", self.name, request.step, error)
            if self._plan is None:
                self.run.take_back()
            words = str(error) if isinstance(error, ToldError) else Reason.FAILED.value
            body = Body({"error": words, **self._is_behind})
            return whole(self._head(request, name, body), body)
        head = self._head(request, name, body)
        if not is_ahead or "error" in body.meta:
            self._last = (request.step, name, head, body)
        return whole(head, body)

    def refuse(self, request: Envelope, name: str, reason: str) -> bytes:
        """Refuse a request of this session for its owner; name: the request's digest."""
        self._hear(name)
        body = Body({"error": reason})
        return whole(self._head(request, name, body), body)

    def close(self) -> None:
        """Erase the key share; the party answers no more.

        A run that has not reached its first data step is taken back from the ledger.
        """
        if self._half:
            self._half.erase()
        if self._replica:
            self._replica.close()
        self._sequence, self._answered, self._behind = (), 0, ""
        self.run.take_back()

    # -- going on in another process ------------------------------------------------------------

    @property
    def answered(self) -> int:
        """Steps answered so far; 0 again once closed."""
        return self._answered

    def outcome(self, told: Body) -> tuple[str, str]:
        """Digest of the plan that this party signed; JSON of it, and of what `finish` told it."""
        plan, digest_ = (self._plan.to_dict(), self._plan.digest()) if self._plan else (None, "")
        try:
            weights = weights_of(told).tolist()
        except MessageError:
            weights = None
        said = {"weights": weights, "transcript": told.meta.get("transcript")}
        return digest_, json.dumps({"plan": plan, **said})

    def fingerprint(self) -> str:
        """SHA-256 of the rows, of their views and their schema, hexadecimal."""
        return str((self.run.views or self.run.rows).fingerprint())

    def state(self) -> dict[str, Any]:
        """All that the owner's files do not hold, secrets included; of a replica its head.

        Raises:
            PolicyError: the protocol keeps its secret in memory only.
        """
        step, request, head, body = self._last or ("", "", b"", Body())
        return {
            "run": self.run.state(),
            "session": self._session,
            "answered": self._answered,
            "last": (step, request, whole(head, body)),
            "heard": list(self._heard),
            "seen": self.seen,
            "repeated": self._repeated,
            "plan": self._plan.to_dict() if self._plan else None,
            "half": self._half.state() if self._half else None,
            "replica": self._behind or (self._replica.head if self._replica else ""),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Give a new party, made from the same files, the state of an old one.

        Raises:
            PolicyError: the policy accepts the plan no longer.
        """
        self.run.restore(state["run"])
        self._session, self._answered = state["session"], int(state["answered"])
        step, request, reply = state["last"]
        self._last = (step, request, reply, Body()) if step else None
        self._heard, self.seen = dict.fromkeys(state["heard"]), state["seen"]
        # Until it has agreed it has no plan, and a replica begins with that.
        self._behind = state["replica"] if state["plan"] else ""
        if state["plan"]:
            self._plan = plan_from_dict(state["plan"])
            self._policy.check(self._plan)  # the owner may have changed it meanwhile
            self._repeat(*state["repeated"])
            try:
                with self.run.private:
                    own, before = _own_and_before(self._plan)
                    # Noted when it was agreed; nothing is tossed any more.
                    self._half = self._open_half(
                        self._plan, self._rows_of(self._plan), "", own or before
                    )
                    self._half.restore(state["half"])
            except HiddenError as hidden:
                _tell_owner(self.name, "restart", hidden.__cause__)
                raise PolicyError(REFUSED) from None

    # -- checks ---------------------------------------------------------------------------------

    def _check_address(self, request: Envelope) -> None:
        if (request.sender, request.recipient) != (COORDINATOR, self.name):
            raise MessageError(
                f"message from {request.sender!r} to {request.recipient!r} is not for this party"
            )
        if self._session is not None and request.session != self._session:
            raise PolicyError(f"session {request.session!r} is not the one agreed to")

    def _hear(self, name: str) -> None:
        """Note a request of this session; name: its digest. A copy that comes late is no other."""
        if name not in self._heard:
            self._heard[name] = None
            self.seen = heard(self.seen, name)

    def _check_order(self, step: str) -> tuple[str, ...]:
        """See `_repetition`."""
        if self._answered >= len(self._sequence):
            raise PolicyError(f"step {step!r}: this party's run is over")
        expected = self._sequence[self._answered]
        again = self._repetition()
        if step not in (expected, *again[:1]):
            raise PolicyError(f"step {step!r} is out of order; next is {expected!r}")
        return again

    def _answer(self, request: Envelope, name: str, relayed: Sequence[bytes] | None) -> Body:
        with public():
            again = self._check_order(request.step)
            if self._follows and self._answered:
                self._follow(request, name, relayed)
        if self._plan and protocol_of(self._plan).shows_rows(request.step):
            self.run.account.spend()
        body = self._body(request)
        if request.step in again[:1]:
            self._repeat(self._sequence[self._answered - 1])
        self._session = request.session
        self._answered += 1
        return body

    def _follow(self, request: Envelope, name: str, relayed: Sequence[bytes] | None) -> None:
        """Go on only with what this party's own replica asks, or its witnesses' do.

        Otherwise the session is over. name: the request's digest.

        Raises:
            PolicyError: nothing is relayed. ProtocolError, MessageError: see `Replica.follow`, or
                `witnesses.check_confirmed`.
        """
        self._require_relayed(relayed)
        if not self._computes:
            if self._plan is not None:  # nothing is asked before that a secret is in
                with self._or_over():
                    check_confirmed(self._plan, request, self.seen, relayed or ())
            return
        if self._behind:
            raise PolicyError(
                "this party was restarted, and its replica is gone: it answers once the "
                "coordinator has relayed the whole session again; if this repeats, the coordinator "
                "has not kept all messages: abort, and begin another session"
            )
        with self._or_over():
            if self._replica is None:
                plan = plan_from_dict(_mapping(request.body.meta.get("plan")))
                self._replica = self._new_replica(request.session, plan)
            self._replica.follow(request, name, relayed or (), self._own)

    def _new_replica(self, session: str, plan: RunPlan) -> Replica:
        return Replica(self.name, session, plan, self._size_cap, apart=not self._is_here)

    def _require_relayed(self, relayed: Sequence[bytes] | None) -> None:
        if self._follows and relayed is None:
            raise PolicyError(
                "replica in the [policy] of this party: it answers only where everybody's replies "
                "are relayed; the coordinator's administrator writes relay = true"
            )

    def _ahead(self, relayed: Sequence[bytes], *, more: bool) -> Body:
        """Have the replica compute the next request before it comes, if there is a replica yet.

        more: other replies follow. Once all are there the reply confirms the next request to
        whoever follows this party.
        """
        if self._behind:
            with public(), self._or_over():
                self._catch_up(relayed, more=more)
            return Body(self._is_behind)
        if self._replica is None:
            return Body()
        with public(), self._or_over():
            self._replica.take(relayed, self._own, more=more)
        return Body() if more else self._replica.confirmation()

    def _catch_up(self, relayed: Sequence[bytes], *, more: bool) -> None:
        """Follow an old request; relayed: it, and everybody's replies to the step before.

        more: the others follow. Nothing is answered until the replica has come to the last request
        that was.

        Raises:
            ProtocolError: other messages than those of the session. MessageError: malformed.
        """
        assert self._plan is not None and self._last is not None  # noqa: S101 (it has agreed)
        begins = relayed and address_of(relayed[0][:HEAD_BYTES])[1] == COORDINATOR
        if begins:
            self._next, *relayed = relayed
        if not self._next:
            return  # what comes ahead of the next request, which is too early
        request = decode(self._next, self._coordinator_key, size_cap=self._size_cap)
        name = digest(self._next)
        # Or once more from the first.
        if self._replica is None or (begins and request.step == BEFORE[1]):
            self._replica = self._new_replica(request.session, self._plan)
        if not self._replica.is_at(name):
            self._replica.hear(relayed)
            if more:
                return
            self._replica.follow(request, name, (), b"")
        self._next = b"" if not more else self._next
        if name == self._last[1]:
            if self._replica.head != self._behind:
                raise ProtocolError("the session was relayed anew with other messages than it had")
            self._behind = ""

    @property
    def _is_here(self) -> bool:
        """Whether rows and keys are in this process."""
        return isinstance(self.run, Run)

    @property
    def _is_behind(self) -> dict[str, bool]:
        """What a reply says of it."""
        return {BEHIND: True} if self._behind else {}

    @property
    def _follows(self) -> tuple[str, ...]:
        return self._policy.follows(self.name)

    @property
    def _computes(self) -> bool:
        """Whether by a replica of its own."""
        return self._follows == (self.name,)

    @property
    def _own(self) -> bytes:
        """This party's reply to the step before."""
        assert self._last is not None  # noqa: S101 (it has answered)
        return whole(*self._last[2:])

    @contextmanager
    def _or_over(self) -> Iterator[None]:
        """What does not follow ends the session."""
        try:
            yield
        except (ProtocolError, MessageError):
            self.close()
            raise

    def _repetition(self) -> tuple[str, ...]:
        """What may be asked in place of the next step: the last one, without missing parties."""
        if self._plan is None or not self._answered:
            return ()
        return protocol_of(self._plan).repetition(self._plan, self._sequence[self._answered - 1])

    def _repeat(self, *steps: str) -> None:
        """From now on the sequence has the repetitions of these steps."""
        assert self._plan is not None  # noqa: S101 (nothing is repeated before)
        self._repeated += steps
        self._sequence = protocol_of(self._plan).sequence(self._plan, self._repeated)

    def _body(self, request: Envelope) -> Body:
        if request.step in self._handlers:
            return self._handlers[request.step](request.body)
        if self._half is None:
            raise PublicError("no plan is agreed yet")
        # The function of the protocol's STEPS: `commit-rows` goes to `contribute.commit(half, …)`.
        with public():
            return protocol_of(self._half.plan).answer(self._half, request.step, request.body)

    def _head(self, request: Envelope, answers: str, body: Body) -> bytes:
        address = (request.session, request.step, self.name, COORDINATOR)
        envelope = Envelope(*address, body, answers=answers, seen=self.seen)
        return signed_head(envelope, self.run.signing_key)

    # -- steps ------------------------------------------------------------------------------------

    def _enrol(self, request: Body) -> Body:
        rows, committed = self.run.rows, self.run.commitment
        return agree.answer_enrol(
            rows.rows, rows.num_features, rows.schema.digest(), committed, self._follows
        )

    def examine(self, request: Envelope, relayed: Sequence[bytes] | None) -> RunPlan:
        """The plan that a request asks to agree to, before the owner is asked; no effect.

        Raises:
            CohortError: this party would refuse it, whatever its owner says: `_agree` as well.
        """
        self._check_address(request)
        self._check_order(request.step)
        self._require_relayed(relayed)
        plan, _, cost = self._examined(request.body)
        if cost and self._policy.largest is not None:
            with public():
                hold(cost, *self._policy.largest)
        return plan

    def _examined(self, request: Body) -> tuple[RunPlan, Shard, Mechanism | None]:
        """A plan that policy and public figures allow, the rows it is of, and what it costs."""
        with public():
            plan = plan_from_dict(_mapping(request.meta.get("plan")))
            member = plan.members[plan.party_index(self.name)]
        shard, commitment = self._rows_of(plan), self.run.commitment
        with public():
            self._check_member(plan, member, shard, commitment)
            self._check_policy(plan)
            norm_bound = shard.schema.norm_bound
            plan.check_rows(norm_bound)
            cost = self._cost(plan, norm_bound)
            self._policy.check_slots(plan, kinds.slot_bounds(plan, norm_bound))
        if plan.whitens:
            self.run.account.require(getattr(plan, "moment_plan", ""))
        return plan, shard, cost

    def _check_member(self, plan: RunPlan, member: Member, shard: Shard, commitment: str) -> None:
        rows = self.run.rows.rows
        if member.rows != plan.rows_of(rows) or plan.num_features != shard.num_features:
            raise PolicyError("the plan states another shape of this party's data")
        if member.verify_key != public_bytes(self.run.signing_key):
            raise PolicyError("the plan holds another verification key than this party's")
        if plan.session != self._session:
            raise PolicyError(f"the plan is of session {plan.session!r}, not of this one")
        if member.commitment != commitment:  # one of another run: an old plan
            raise PolicyError("the plan holds another commitment than this party's")
        if plan.row_terms != shard.schema.row_terms:
            raise PolicyError("the plan states other weights or offsets of rows than the schema")

    def _check_policy(self, plan: RunPlan) -> None:
        self._policy.check(plan)
        self._policy.check_alone(plan, self.name)
        self._policy.check_held_out(plan, self.run.rows.rows)
        self._policy.check_followed(plan, self.name)

    def _agree(self, request: Body) -> Body:
        plan, shard, cost = self._examined(request)
        if self.consented not in (None, plan.digest()):
            raise PublicError("this party's owner has not consented to this plan")
        with public():
            sequence = protocol_of(plan).sequence(plan)
        # Before the first look at a row.
        if cost:
            self.run.account.reserve(cost, plan.digest())
        half = self._open_half(plan, shard, *_own_and_before(plan))
        with public():
            signed = self.run.agree(plan.digest(), agree.commitments(plan))
        self._half, self._plan, self._sequence = half, plan, sequence
        return agree.answer_agree(plan, *signed)

    def _cost(self, plan: RunPlan, norm_bound: float) -> Mechanism | None:
        """Of whatever plan claims privacy, and of one that a ledger would have to count."""
        claims = plan.privacy is not None or self.run.account.is_kept
        return recompute(plan, norm_bound) if claims else None

    def _rows_of(self, plan: RunPlan) -> Shard:
        """All rows, or the view of them that a sum is over."""
        digest = dict(plan.schema).get("digest")
        # A view is never answered by rows as for training, but where a party has these alone.
        if digest == self.run.rows.schema.digest() and not (plan.view and self.run.views):
            return cast("Shard", self.run.rows)
        found = self.run.views.find(plan.view, str(digest)) if self.run.views else None
        if found is None:
            raise PublicError("the plan names another column schema")
        return cast("Shard", found)

    def _open_half(self, plan: RunPlan, rows: Shard, *plans: str) -> PartyProtocol:
        """plans: as of `Coins.chosen`."""
        used = self.run.used(rows, plan.held_out, *plans)
        # Such as `encrypted_rows.EncryptedRowsParty`.
        with public():
            try:
                return half_of(plan).open(plan, used, self.run, self._open_contributor)
            except ArithmeticError as error:
                raise ParameterError("the plan's numbers are out of range") from error

    def _reveal(self, request: Body) -> Body:
        with public():
            return Body({"seed": self.run.reveal(agree.signatures_of(request)).hex()})

    def _finish(self, request: Body) -> Body:
        if self._half:
            self._half.erase()
        self.run.account.commit()
        return Body()


def _tell_owner(name: str, step: str, error: BaseException | None) -> None:
    """In the log, which no coordinator sees: the words of a DataError, the trace of all else."""
    if isinstance(error, DataError):
        log.warning("%s refuses %s: %s", name, step, error)
    else:
        log.error("%s refuses %s, for this error:", name, step, exc_info=error)


def _own_and_before(plan: RunPlan) -> tuple[str, str]:
    """Where rows are held back, digests as of `Coins.chosen`: of the plan, and of the one before.

    A sum is of the rows of its training, and a training on whitened rows of those of the moment.
    """
    if plan.held_out is None:
        return "", ""
    before = getattr(plan, "of_training", "") or getattr(plan, "moment_plan", "")
    trains = plan.sums_moment or not plan.statistic
    return plan.digest() if trains else "", before


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MessageError("a field that should be an object is missing")
    return value
