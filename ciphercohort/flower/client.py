"""A client's half of a secure sum: keys once a run, then two short steps a round.

    keys     -> {session}                                <- {entry}
    roster   -> {roster}                                 <- {digest}, or {refused, reasons}: members
                                                            that it does not take part with
    sum      -> the app's message, {session, epoch,      <- {layout, shares}, words
                 round, asked, plan}
    open     -> {session, epoch, round, set, shares}     <- {answer}; left out if none may vanish

All four travel as the type of message that is being answered ("train", "evaluate" or "query").

Promises, each held by this file whatever the server asks
- A message without a step is refused: no reply to one leaves in the clear.
- Rounds rise, and a round is answered once; one set of contributors is answered for in a round, and
  only if this client and enough others are in it. Who asks for that set again gets the same bytes.
- Session, roster, round, those asked, plan, the message's group and all its content, in its order,
  are hashed into what masks and seals; the run's configuration into what seals.
- A roster, and those whom a round asks, are half of those known or pinned here at least, or what
  its owner's pins and least number allow (`Owner.least_share`).
- At one model, and to one query, one set of contributors is summed; what is cut off is as in the
  run's first plan.
- Once a run has had noise, or its owner has a budget, no sum leaves without noise.
- Errors name bounds and never values, and no number causes one; errors of the app's own function
  stay here, in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from ciphercohort.flower import lots, named
from ciphercohort.flower.contributions import CHECK, Cut, num_exact
from ciphercohort.flower.members import Entry, Roster, pair_keys, refused, trusted
from ciphercohort.flower.memory import RECORD, Memory, Owner, alone, own_record
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.records import (
    LARGEST_METRIC,
    Bases,
    Layout,
    Reply,
    differences,
    digests,
)
from ciphercohort.flower.rounds import (
    KEYS,
    OPEN,
    QUERY,
    ROSTER,
    SUM,
    SUMS,
    WORDS,
    bound,
    round_context,
)
from protocols.aggregate import one_time, residues
from protocols.aggregate.quorum import MIN_CLIENTS, Quorum
from protocols.aggregate.words import Words, to_bytes
from protocols.errors import CohortError, DataError, MessageError, PolicyError, ProtocolError
from protocols.privacy.laws import ExpandedRandomness, RandomSource

AppFunction = Callable[[Message, Context], Message]
log = logging.getLogger("flwr.secure-sum")
FAILED = "the app's own function failed, or what became of its reply; see this client's log"
"""All that a server hears of an error, of whatever type, but for refusals of this file."""
# The session that was last logged here: a simulation has many clients in one process.
_TOLD: list[str] = []


class Client:
    """Answers one message; requirements: refuses plans; statistics: kinds by metric's name.

    See `SecureSumMod` of both.
    """

    def __init__(
        self,
        message: Message,
        context: Context,
        call_next: AppFunction,
        requirements: Callable[[SumPlan], None],
        statistics: Mapping[str, str],
    ) -> None:
        self._message, self._context, self._call_next = message, context, call_next
        self._require, self._statistics = requirements, statistics
        self._owner = Owner.of(context)
        self._randomness: RandomSource = ExpandedRandomness()

    def answer(self) -> Message:
        """The reply.

        Raises:
            CohortError: it is refused, or the app's function failed.
        """
        config = own_record(self._message.content)
        if config is None:
            raise PolicyError(
                "the server asks for a reply in the clear: wrap its strategy in "
                "ciphercohort.flower.SecureSum, or the grid that it sends by in SecureGrid"
            )
        request = Request(config)
        steps = {KEYS: self._keys, ROSTER: self._roster, SUM: self._sum, OPEN: self._open}
        step = request.text("step")
        if step not in steps:
            raise MessageError(f"step={step!r} is none of {', '.join(steps)}")
        with alone(self._owner):
            self._memory = Memory.load(self._context, self._owner)
            try:
                content = steps[step](request)
            except CohortError:
                raise
            except Exception:
                # Its text may hold data.
                log.exception("step %s failed", step)
                raise ProtocolError(FAILED) from None
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
            raise PolicyError(
                f"{len(roster.entries)} members are too few: this client's owner wants "
                f"secure-sum-min-clients={max(MIN_CLIENTS, self._owner.min_clients)}"
            )
        expected = max(len(memory.known), len(self._owner.pins or ()))
        if len(roster.entries) < self._owner.least_share * expected:
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
        strangers = refused(roster, memory.known, self._owner.pins, self._owner.admit)
        if strangers:
            for reason in strangers.values():
                log.warning("client %s refuses: %s", self._owner.name, reason)
            return _reply({"refused": list(strangers), "reasons": list(strangers.values())})
        known = {**memory.known, **{entry.name: entry.identity for entry in roster.entries}}
        if self._owner.pins is not None or self._owner.home is not None:
            why = trusted(roster, memory.known, self._owner.pins is not None)
            log.info("client %s: %s", self._owner.name, why)
        elif roster.session not in _TOLD:
            _TOLD[:] = [roster.session]
            log.info(
                "keys of %d clients, trusted without home folder or pins (normal in a simulation)",
                len(roster.entries),
            )
        memory.known, memory.own, memory.pairs = known, own, pairs
        memory.members = [entry.identity for entry in roster.entries]
        memory.epoch, memory.roster = roster.epoch, roster.digest()
        memory.waiting, memory.answered = [], []
        return _reply({"digest": memory.roster.hex()})

    # -- a round ----------------------------------------------------------------------------------

    def _sum(self, request: Request) -> RecordDict:
        memory, content = self._memory, self._message.content
        if self._is_stale(request):
            return _reply({"stale": True})
        place, asked, plan, model = self._place(request)
        self._require(plan)
        self._check_noise(plan)
        self._check_cut(plan)
        number = request.whole("round")
        if number <= memory.last:
            raise PolicyError(
                f"round={number} is not above {memory.last}, which was answered: an update is "
                "encrypted once"
            )
        bases = Bases(content)
        memory.last = number
        memory.noise = "with" if plan.privacy else "without"
        memory.waiting, memory.answered = [], []
        if not place.quorum.lost:
            # It may open without another word of this client.
            self._bind(model, asked)
        reply, changes = self._replied(plan, bases)
        if place.quorum.lost:
            told = [number, asked, place.context.hex(), plan.lost, model]
            memory.waiting = [*told, num_exact(reply.layout, plan)]
        # An app may have had NumPy raise.
        with np.errstate(all="ignore"):
            words, exact = self._words(plan, place, reply, bases, changes)
        words, sealed = one_time.contribute(place, words, exact, self._randomness)
        data = to_bytes(words)
        answer = _reply({"layout": self._layout(plan, reply), "shares": list(sealed)})
        answer[WORDS] = record = ArrayRecord()
        record["words"] = Array("uint8", (len(data),), "raw", data)
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
        # Not of the roster alone: it may be half of those known, and half of it a quarter.
        known = max(members, len(memory.known), len(self._owner.pins or ()))
        if len(asked) < self._owner.least_share * known:
            raise PolicyError(
                f"{len(asked)} of {known} clients are asked: at least half must be, so that the "
                "server cannot choose a few beside its own; an owner's secure-sum-pins and "
                "secure-sum-min-clients allow fewer"
            )
        needed = Quorum.of(len(asked), plan.lost).needed
        if needed < self._owner.min_clients:
            raise PolicyError(
                f"a sum of {needed} of {len(asked)} clients could open, and this one's owner wants "
                f"secure-sum-min-clients={self._owner.min_clients}: sample more, or give SecureSum "
                "a smaller lost"
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
        model = _digest(bound(kind, content, arrays))
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

    def _check_cut(self, plan: SumPlan) -> None:
        """Sums that cut values off at chosen bounds would show single values.

        The weights' scale follows the mean weight by powers of 2: see `SumPlan.weighed_like`.
        """
        if plan.privacy:
            return
        first, scale = self._memory.cut = self._memory.cut or [plan.range, plan.weight_scale]
        if plan.range != first:
            raise PolicyError(f"range={plan.range:g} is not {first:g}, that of the run's first sum")
        # Numbers with one mantissa differ by a power of 2.
        if math.frexp(plan.weight_scale)[0] not in (0.5, math.frexp(scale)[0]):
            raise PolicyError(
                f"weight_scale={plan.weight_scale:g} is no power of 2, nor {scale:g}, that of the "
                "run's first sum, times one"
            )

    def _bind(self, model: str, contributors: list[int]) -> None:
        """One set of contributors at one model, in the whole run."""
        memory = self._memory
        who = _digest("".join(memory.members[k] for k in contributors).encode())
        if f"{model}:" not in memory.opened:
            memory.opened += f"{model}:{who} "
        elif f"{model}:{who} " not in memory.opened:
            raise PolicyError(
                "other clients contribute than in an earlier sum with this very model: the "
                "difference of both sums would be that of few clients"
            )

    def _round(self, asked: list[int], lost: float, context: bytes) -> one_time.Round:
        # A server can give each node another run configuration: those told otherwise share no keys.
        told = json.dumps(dict(self._context.run_config), sort_keys=True).encode()
        keys = [self._memory.pair(k) for k in asked]
        own = asked.index(self._memory.own)
        quorum = Quorum.of(len(asked), lost)
        return one_time.Round(quorum, own, keys, context, hashlib.sha256(told).digest())

    def _replied(self, plan: SumPlan, bases: Bases) -> tuple[Reply, lots.Changes | None]:
        """The app's reply as numbers; of a private plan always one, for a refusal tells of data.

        Where the app fails, or replies what cannot be summed, it is of the usual layout and changes
        nothing: this client adds noise alone, and the round is charged like any other.
        """
        known = self._memory.layout and Layout.of_json(self._memory.layout)
        usual = known if known and bases.fit(known) else None
        try:
            with lots.drawing(plan.privacy, self._randomness) as turn:
                content = self._own_content()
            changes = None
            if turn:
                content, changes = lots.split(content, bases, turn.drawn)
            weigh = plan.privacy is None
            found = Reply.of(content, bases, plan.weighted_by, weigh=weigh, named=self._named)
            if plan.privacy and usual and self._layout(plan, found) != usual.to_json():
                raise DataError("the reply has other arrays than the one before")
            if plan.privacy and not found.layout.length:
                raise DataError("metrics alone carry no noise: not in a private run")
        except Exception as error:
            if plan.privacy is None:
                raise
            log.warning("client %s adds noise alone in this round: %s", self._owner.name, error)
            found = Reply.of_nothing(bases, plan.weighted_by, usual)
            empty = [np.zeros((0, place.size)) for place in found.layout.arrays]
            return found, lots.Changes(tuple(empty), 0) if plan.privacy.records else None
        if plan.privacy is not None:
            self._memory.layout = self._layout(plan, found)
        return found, changes

    def _own_content(self) -> RecordDict:
        """What the app's own function returns to the app's own message."""
        step = self._message.content.pop(RECORD)
        try:
            reply = self._call_next(self._message, self._context)
        except Exception:
            # Its text may hold data.
            log.exception("the app's function failed")
            raise ProtocolError(FAILED) from None
        finally:
            self._message.content[RECORD] = step
        if reply.has_error():
            raise ProtocolError(FAILED)
        return reply.content

    def _named(self, record: str, key: str) -> str:
        """Kind of a named statistic: see `named`."""
        query = self._message.metadata.message_type.split(".")[0] == QUERY
        summed = query or record.split(".")[0] == SUMS
        return self._statistics.get(key, "") or ("sum" if summed else "")

    def _layout(self, plan: SumPlan, reply: Reply) -> str:
        layout = reply.layout
        return (Layout(layout.arrays, (), layout.weight) if plan.privacy else layout).to_json()

    def _words(
        self,
        plan: SumPlan,
        place: one_time.Round,
        reply: Reply,
        bases: Bases,
        changes: lots.Changes | None,
    ) -> tuple[Words, residues.Residues]:
        clients = place.quorum.clients
        if plan.privacy is not None:
            # Accountants take a second to load, and a process may live for one message only.
            from ciphercohort.flower.private import Account, noisy_words

            account = Account(self._memory.spent)
            length, name = reply.layout.length, f"{self._memory.session}/{self._memory.last}"
            account.charge(plan.privacy, place.quorum, length, self._owner, name)
            # Before anything leaves, whatever comes of it.
            self._save()
            if changes:
                found = changes.words(plan.privacy, place.quorum, self._randomness)
            else:
                found = noisy_words(plan.privacy, place.quorum, reply, bases, self._randomness)
            return found.view(np.uint32), residues.encode([], self._randomness)
        sums, cut = reply.layout.sums, Cut(weights=not reply.weight_fits)
        kind = np.dtype(np.uint64 if plan.wide else np.uint32)
        extremes = named.words(sums, reply.sums, kind, self._randomness)
        rest = np.concatenate([*extremes, np.zeros(CHECK, kind)])
        words = np.empty(reply.layout.length + len(rest), kind)
        words[reply.layout.length :] = rest
        factor = reply.weight / plan.weight_scale * plan.units(clients)
        most = plan.most(clients)
        # Beyond float32's exponents no product with a factor is right.
        least = np.float32 if factor < 2.0**64 and not plan.wide else np.float64
        with np.errstate(over="ignore", invalid="ignore"):
            for start, block in differences(reply, bases, least):
                block *= factor
                np.rint(block, out=block)
                # NaN fails the comparison too.
                if not (-most <= block.min(initial=0) and block.max(initial=0) <= most):
                    odd = ~np.isfinite(block)
                    block[odd] = 0
                    cut.odd += int(odd.sum())
                    cut.values += int((np.abs(block) > most).sum())
                    np.clip(block, -most, most, out=block)
                words[start : start + len(block)].view(f"i{kind.itemsize}")[:] = block
        weighed = []
        for value in reply.metrics:
            cut.odd_metrics += not math.isfinite(value)
            cut.metrics += LARGEST_METRIC < abs(value) < math.inf
            bounded = min(max(value, -LARGEST_METRIC), LARGEST_METRIC)
            weighed.append(bounded * reply.weight if math.isfinite(value) else math.nan)
        exact = [reply.weight, *cut.numbers(), *weighed, *named.exact(sums, reply.sums)]
        return words, residues.encode(exact, self._randomness)

    def _open(self, request: Request) -> RecordDict:
        memory = self._memory
        if self._is_stale(request):
            raise PolicyError("the set is of another session or roster than this client's")
        chosen = request.numbers("set")
        if memory.answered:
            answered, members, answer = memory.answered
            if [answered, members] == [request.whole("round"), chosen]:
                return _reply({"answer": bytes.fromhex(answer)})
        if not memory.waiting:
            raise PolicyError("this client waits for no set: one set is answered for in a round")
        number, asked, context, lost, model, exact = memory.waiting
        if request.whole("round") != number:
            raise PolicyError(f"this client waits for the set of round {number}")
        if not set(chosen) <= set(asked):
            raise PolicyError("a contributor was not asked")
        if len(chosen) < self._owner.min_clients:
            raise PolicyError(
                f"{len(chosen)} clients contributed, and this one's owner wants "
                f"secure-sum-min-clients={self._owner.min_clients}"
            )
        place = self._round(asked, lost, bytes.fromhex(context))
        members = [asked.index(k) for k in chosen]
        sealed = request.blobs("shares")
        answer = one_time.answer(place, members, sealed, exact, self._randomness)
        self._bind(model, chosen)
        memory.waiting, memory.answered = [], [number, chosen, answer.hex()]
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


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _reply(fields: dict[str, Any]) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord(fields)})
