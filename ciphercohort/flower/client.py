"""A client's half of a secure sum: keys once a run, then two short steps a round.

    keys     -> {session}                                <- {entry}
    roster   -> {roster}                                 <- {digest}
    sum      -> the app's message, {session, epoch,      <- {layout, shares}, words
                 round, asked, plan}
    open     -> {session, epoch, round, set, shares}     <- {answer}; left out if none may vanish

All four travel as the type of message that is being answered ("train" or "evaluate"). Messages of
other types ("query", "get_properties") are not ours: the mod passes them on, and what the app
replies to them leaves in the clear.

Promises, each held by this file whatever the server asks
- A train or evaluate message without a step is refused: no reply to one leaves in the clear.
- Rounds rise, and a round is answered once; a set of contributors is answered for once a round, and
  only if this client and enough others are in it.
- Session, roster, round, those asked, plan, the message's group and all its content, in its order,
  are hashed into what masks and seals; the run's configuration into what seals.
- A round asks half of the roster at least; a roster has half of those known here at least.
- Once a run has had noise, or its owner has a budget, no sum leaves without noise.
- Errors name bounds and never values, and no number causes one; errors of the app's own function
  stay here, in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from ciphercohort.flower.members import Entry, Roster, check_known, pair_keys, trusted
from ciphercohort.flower.memory import RECORD, Memory, Owner, alone
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.records import (
    Bases,
    Layout,
    Reply,
    differences,
    digests,
)
from ciphercohort.flower.rounds import KEYS, LEAST_SHARE, OPEN, ROSTER, SUM, WORDS, round_context
from protocols.aggregate import limbs, one_time
from protocols.aggregate.quorum import MIN_CLIENTS, Quorum
from protocols.aggregate.words import Words
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.privacy.randomness import ExpandedRandomness, RandomSource

AppFunction = Callable[[Message, Context], Message]
log = logging.getLogger("flwr.secure-sum")


class Client:
    """Answers one message; requirements: refuses plans, see `SecureSumMod`."""

    def __init__(
        self,
        message: Message,
        context: Context,
        call_next: AppFunction,
        requirements: Callable[[SumPlan], None],
    ) -> None:
        self._message, self._context, self._call_next = message, context, call_next
        self._require = requirements
        self._owner = Owner.of(context)
        self._randomness: RandomSource = ExpandedRandomness()

    def answer(self) -> Message:
        """The reply.

        Raises:
            CohortError: it is refused, or the app's function failed.
        """
        config = self._message.content.config_records.get(RECORD)
        if config is None:
            raise PolicyError(
                "the server asks for a reply in the clear: wrap its strategy in "
                "ciphercohort.flower.SecureSum"
            )
        request = Request(config)
        steps = {KEYS: self._keys, ROSTER: self._roster, SUM: self._sum, OPEN: self._open}
        step = request.text("step")
        if step not in steps:
            raise MessageError(f"step={step!r} is none of {', '.join(steps)}")
        with alone(self._owner):
            self._memory = Memory.load(self._context, self._owner)
            content = steps[step](request)
            self._save()
        return Message(content, reply_to=self._message)

    def _save(self) -> None:
        self._memory.save(self._context, self._owner)

    # -- keys -------------------------------------------------------------------------------------

    def _keys(self, request: Request) -> RecordDict:
        memory = self._memory
        memory.session = request.text("session")
        identity = self._owner.identity(memory.identity)
        entry = Entry.by(identity, self._owner.name, memory.fresh_key(), memory.session)
        return _reply({"entry": json.dumps(astuple(entry))})

    def _roster(self, request: Request) -> RecordDict:
        memory = self._memory
        roster = Roster.of_json(request.text("roster"))
        if roster.session != memory.session or roster.epoch <= memory.epoch:
            raise PolicyError("the roster is of another session, or older than the one held")
        if len(roster.entries) < max(MIN_CLIENTS, self._owner.min_clients):
            raise PolicyError(f"{len(roster.entries)} members are too few")
        expected = max(len(memory.known), len(self._owner.pins or ()))
        if len(roster.entries) < LEAST_SHARE * expected:
            raise PolicyError(
                f"a roster of {len(roster.entries)} is less than half of the {expected} clients "
                "that are known or pinned here: remove those that are gone from known.json, or "
                "from the pins"
            )
        private = X25519PrivateKey.from_private_bytes(memory.private)
        own, pairs = pair_keys(roster, private)
        if roster.entries[own].name != self._owner.name:
            raise ProtocolError("this client stands in the roster under another name")
        for entry in roster.entries:
            entry.check(roster.session)
        known = check_known(roster, memory.known, self._owner.pins, self._owner.admit)
        why = trusted(roster, memory.known, self._owner.pins is not None)
        log.info("client %s: %s", self._owner.name, why)
        memory.known, memory.own, memory.pairs = known, own, pairs
        memory.members = [entry.identity for entry in roster.entries]
        memory.epoch, memory.roster, memory.waiting = roster.epoch, roster.digest(), ""
        return _reply({"digest": memory.roster.hex()})

    # -- a round ----------------------------------------------------------------------------------

    def _sum(self, request: Request) -> RecordDict:
        memory, content = self._memory, self._message.content
        if self._is_stale(request):
            return _reply({"stale": True})
        place, asked, plan, model = self._place(request)
        self._require(plan)
        self._check_noise(plan)
        number = request.whole("round")
        if number <= memory.last:
            raise PolicyError(
                f"round={number} is not above {memory.last}, which was answered: an update is "
                "encrypted once"
            )
        bases = Bases(content)
        who = hashlib.sha256("".join(memory.members[k] for k in asked).encode()).hexdigest()[:32]
        if memory.sums.get(model, who) != who:
            raise PolicyError(
                "other clients are asked than in an earlier round with this very model: the "
                "difference of both sums would be that of few clients"
            )
        memory.last = number
        memory.noise = "with" if plan.privacy else "without"
        memory.waiting = ""
        if place.quorum.lost:
            memory.waiting = json.dumps([number, asked, place.context.hex(), plan.lost, model, who])
        else:
            # It may open without another word of this client.
            memory.sums[model] = who
        reply = self._own_reply(bases, plan)
        words = self._words(plan, place, reply, bases, f"{memory.session}/{number}")
        words, sealed = one_time.contribute(place, words, self._randomness)
        data = words.astype("<u4", copy=False).tobytes()
        answer = _reply({"layout": self._layout(plan, reply), "shares": list(sealed)})
        array = Array(dtype="uint32", shape=(len(words),), stype="raw", data=data)
        answer[WORDS] = ArrayRecord({"words": array})
        return answer

    def _is_stale(self, request: Request) -> bool:
        """Whether it is of another session or roster than this client's."""
        memory = self._memory
        held = memory.session, memory.epoch
        return (request.text("session"), request.whole("epoch")) != held or memory.own < 0

    def _place(self, request: Request) -> tuple[one_time.Round, list[int], SumPlan, str]:
        """Checked: this roster, a quorum of which this client is one, its context.

        And the digest of the message's kind and arrays.
        """
        memory = self._memory
        asked, plan = request.numbers("asked"), SumPlan.of_json(request.text("plan"))
        members = len(memory.pairs) // one_time.KEY_BYTES
        if asked != sorted({k for k in asked if 0 <= k < members}) or memory.own not in asked:
            raise PolicyError("those asked are no rising list of members with this client in it")
        if len(asked) < LEAST_SHARE * members:
            raise PolicyError(
                f"{len(asked)} of {members} clients are asked: at least half must be, so that the "
                "server cannot choose a few beside its own"
            )
        needed = Quorum.of(len(asked), plan.lost).needed
        if needed < self._owner.min_clients:
            raise PolicyError(
                f"a sum of {needed} of {len(asked)} clients could open; this one wants at least "
                f"{self._owner.min_clients}: sample more, or give SecureSum a smaller lost"
            )
        fields = {
            "session": memory.session,
            "epoch": memory.epoch,
            "round": request.whole("round"),
            "asked": asked,
            "plan": request.text("plan"),
        }
        metadata = self._message.metadata
        content, arrays = digests(self._message.content, RECORD)
        kind = metadata.message_type
        context = round_context(memory.roster, fields, kind, metadata.group_id, content)
        model = hashlib.sha256(kind.encode() + b"\0" + arrays).hexdigest()[:32]
        return self._round(asked, plan.lost, context), asked, plan, model

    def _check_noise(self, plan: SumPlan) -> None:
        """Whoever had noise keeps it."""
        noise = "with" if plan.privacy else "without"
        if plan.privacy is None and (self._owner.epsilon is not None or self._memory.spent):
            raise PolicyError(
                "the plan has no noise, and this client has a budget or is in a private run: sums "
                "without noise are not counted by any epsilon"
            )
        if self._memory.noise not in ("", noise):
            raise PolicyError(
                f"the run's earlier sums were {self._memory.noise} noise and this one is {noise}: "
                "no epsilon would hold for both"
            )

    def _round(self, asked: list[int], lost: float, context: bytes) -> one_time.Round:
        # A server can give each node another run configuration: those told otherwise share no keys.
        told = json.dumps(dict(self._context.run_config), sort_keys=True).encode()
        keys = [self._memory.pair(k) for k in asked]
        own = asked.index(self._memory.own)
        quorum = Quorum.of(len(asked), lost)
        return one_time.Round(quorum, own, keys, context, hashlib.sha256(told).digest())

    def _own_reply(self, bases: Bases, plan: SumPlan) -> Reply:
        """What the app's own function returns to the app's own message."""
        step = self._message.content.config_records.pop(RECORD)
        try:
            reply = self._call_next(self._message, self._context)
        except Exception:
            # Its text may hold data.
            log.exception("the app's function failed")
            raise ProtocolError("the app's own function failed; see this client's log") from None
        finally:
            self._message.content[RECORD] = step
        if reply.has_error():
            raise ProtocolError("the app's own function returned an error; see this client's log")
        return Reply.of(reply.content, bases, plan.weighted_by, weigh=plan.privacy is None)

    def _layout(self, plan: SumPlan, reply: Reply) -> str:
        layout = reply.layout
        return (Layout(layout.arrays, (), layout.weight) if plan.privacy else layout).to_json()

    def _words(
        self, plan: SumPlan, place: one_time.Round, reply: Reply, bases: Bases, name: str
    ) -> Words:
        clients = place.quorum.clients
        if plan.privacy is not None:
            if not reply.layout.length:
                raise PolicyError("metrics alone carry no noise: not in a private run")
            # Accountants take a second to load, and a process may live for one message only.
            from ciphercohort.flower.private import Account, noisy_words

            account = Account(self._memory.spent)
            length = reply.layout.length
            account.charge(plan.privacy, place.quorum, length, self._owner, name)
            # Before anything leaves, whatever comes of it.
            self._save()
            found = noisy_words(plan.privacy, place.quorum, reply, bases, self._randomness)
            return found.view(np.uint32)
        length, beyond = reply.layout.length, reply.beyond
        weighed = [value * reply.weight for value in reply.metrics]
        words = np.empty(length + limbs.LIMBS * (len(weighed) + 2), np.uint32)
        factor = reply.weight / plan.weight_scale * plan.units(clients)
        most = one_time.largest_units(clients)
        # Beyond float32's exponents no product with a factor is right.
        least = np.float32 if factor < 2.0**64 else np.float64
        for start, block in differences(reply, bases, least):
            block *= factor
            np.rint(block, out=block)
            # NaN fails the comparison too. A refusal would tell the server of this client alone.
            if not (-most <= block.min(initial=0) and block.max(initial=0) <= most):
                beyond += int((~(np.abs(block) <= most)).sum())
                block = np.clip(np.nan_to_num(block, posinf=most, neginf=-most), -most, most)
            words[start : start + len(block)].view(np.int32)[:] = block
        # As for arrays: cut off, and counted.
        largest = limbs.LARGEST - 1
        beyond += sum(not abs(value) <= largest for value in weighed)
        cut = np.clip(np.nan_to_num(weighed, posinf=largest, neginf=-largest), -largest, largest)
        told = [min(reply.weight, largest), min(float(beyond), largest), *cut.tolist()]
        words[length:] = limbs.encode(told, clients)
        return words

    def _open(self, request: Request) -> RecordDict:
        memory = self._memory
        if self._is_stale(request):
            raise PolicyError("the set is of another session or roster than this client's")
        if not memory.waiting:
            raise PolicyError("this client waits for no set: one set is answered for in a round")
        number, asked, context, lost, model, who = json.loads(memory.waiting)
        if request.whole("round") != number:
            raise PolicyError(f"this client waits for the set of round {number}")
        chosen = request.numbers("set")
        if not set(chosen) <= set(asked):
            raise PolicyError("a contributor was not asked")
        if len(chosen) < self._owner.min_clients:
            raise PolicyError(f"{len(chosen)} contributors are too few for this client")
        place = self._round(asked, lost, bytes.fromhex(context))
        members = [asked.index(k) for k in chosen]
        answer = one_time.answer(place, members, request.blobs("shares"), self._randomness)
        memory.waiting = ""
        memory.sums[model] = who
        return _reply({"answer": answer})


class Request:
    """Fields of our record in a request.

    Every method raises MessageError where the field is not there, or of another type.
    """

    def __init__(self, config: ConfigRecord) -> None:
        self._config = config

    def _get(self, name: str, kind: type, items: type | None = None) -> Any:
        value = self._config.get(name)
        plain = isinstance(value, kind) and not isinstance(value, bool)
        if not plain or (items and not all(type(item) is items for item in value)):  # type: ignore[union-attr]
            raise MessageError(f"the request's field {name!r} is missing or malformed")
        return value

    def text(self, name: str) -> str:
        """A text."""
        return str(self._get(name, str))

    def whole(self, name: str) -> int:
        """An integer."""
        return int(self._get(name, int))

    def numbers(self, name: str) -> list[int]:
        """A list of integers."""
        return list(self._get(name, list, int))

    def blobs(self, name: str) -> list[bytes]:
        """A list of byte strings."""
        return list(self._get(name, list, bytes))


def _reply(fields: dict[str, Any]) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord(fields)})
