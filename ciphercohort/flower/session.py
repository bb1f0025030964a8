"""The server's half of the keys: who is a member, at every client's word alone.

The first round asks all nodes for keys, and tells everybody the roster. A node that comes later, or
that lost its keys, is asked when it is sampled; a new roster then goes to all. Members say whom
they do not take part with (no pin, another identity than before, new since the first round): the
roster shrinks to the largest set that accept one another.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from flwr.app import ConfigRecord, Message, RecordDict

from ciphercohort.flower.exchange import LATE, Exchange, sentences, shown
from ciphercohort.flower.members import Entry, Roster
from ciphercohort.flower.memory import RECORD, own_record
from ciphercohort.flower.rounds import KEYS, ROSTER
from protocols.aggregate.quorum import MIN_CLIENTS
from protocols.errors import CohortError, MessageError, ProtocolError

log = logging.getLogger("flwr.secure-sum")


class Session:
    """Keys of one run: `roster`, which node each member is, and why others are `absent`.

    refused: nodes that members do not take part with; they are not asked again.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._name = secrets.token_hex(16)
        self._entries: dict[int, Entry] = {}
        self.refused: set[int] = set()
        self.absent: dict[int, str] = {}
        self.roster = Roster(self._name, 0, ())

    def prepare(self, nodes: Iterable[int], everybody: Iterable[int], kind: str) -> dict[int, int]:
        """Make members of the sampled nodes that are none; members' numbers by node.

        nodes: sampled ones; everybody: all nodes, asked at first; kind: type of message.

        Raises:
            ProtocolError: fewer than three members.
        """
        wanted = set(nodes) if self._entries else set(nodes) | set(everybody)
        new = self._keys(wanted - set(self._entries) - self.refused, kind)
        if new:
            self._agree(new, kind)
        numbers = {entry.identity: k for k, entry in enumerate(self.roster.entries)}
        return {
            node: numbers[entry.identity]
            for node, entry in self._entries.items()
            if entry.identity in numbers
        }

    def forget(self, node: int) -> None:
        """A node whose keys are gone: it is asked for new ones when it is sampled again."""
        self._entries.pop(node, None)

    def fields(self) -> dict[str, Any]:
        """Of every request of a round."""
        return {"session": self._name, "epoch": self.roster.epoch}

    def _keys(self, nodes: set[int], kind: str) -> dict[int, Entry]:
        request = RecordDict({RECORD: step_record(KEYS, {"session": self._name})})
        found: dict[int, Entry] = {}
        replies = self._exchange.ask(kind, dict.fromkeys(sorted(nodes), request), KEYS)
        left: dict[int, str] = {}
        for node, text in self._exchange.errors.items():
            # The mod itself refuses this step for its owner's settings only.
            foreign = text != LATE and "secure-sum" not in text
            hint = ": is secure_sum_mod in its ClientApp(mods=[…]), and the first of them?"
            hint = hint if foreign else ""
            left[node] = f"no key: {text}{hint}"
        for node, reply in replies.items():
            try:
                entry = Entry.of_json(field(reply, "entry", str))
                self._check(entry, found.values())
            except (CohortError, ValueError) as error:
                left[node] = f"no key: {error}"
            else:
                found[node] = entry
                self.absent.pop(node, None)
        self._leave(left)
        return found

    def _leave(self, why: dict[int, str]) -> None:
        self.absent.update(why)
        if why:
            log.warning("%d nodes stay out of the secure sums: %s", len(why), sentences(why))

    def _check(self, entry: Entry, new: Iterable[Entry]) -> None:
        """Refuse what would spoil the roster for all: no member of it may be like another."""
        entry.check(self._name)
        # Fails for keys that no member could use.
        X25519PrivateKey.generate().exchange(
            X25519PublicKey.from_public_bytes(bytes.fromhex(entry.key))
        )
        for other in (*self._entries.values(), *new):
            if {entry.name, entry.identity, entry.key} & {other.name, other.identity, other.key}:
                raise MessageError(f"another client has its name, identity or key: {other.name!r}")

    def _agree(self, new: Mapping[int, Entry], kind: str) -> None:
        """Tell everybody the roster, until all who stay have taken the same one."""
        old = set(self._entries)
        self._entries.update(new)
        sent = len(self._entries)
        while True:
            if len(self._entries) < MIN_CLIENTS:
                raise ProtocolError(
                    f"{len(self._entries)} of {sent} clients with keys take part, and a secure sum "
                    f"needs {MIN_CLIENTS}. {sentences(self.absent)}"
                )
            roster = Roster.of(self._name, self.roster.epoch + 1, tuple(self._entries.values()))
            self.roster = roster
            request = RecordDict({RECORD: step_record(ROSTER, {"roster": roster.to_json()})})
            replies = self._exchange.ask(kind, dict.fromkeys(self._entries, request), ROSTER)
            nodes = {entry.identity: node for node, entry in self._entries.items()}
            refusals: dict[int, dict[int, str]] = {}
            why: dict[int, str] = {}
            for node in self._entries:
                try:
                    named = _refusals(replies[node])
                    refusals[node] = {
                        nodes[i]: text for i, text in named.items() if nodes.get(i, node) != node
                    }
                    if not refusals[node] and not _agreed(replies[node], roster):
                        why[node] = "it has another list of members"
                except (KeyError, MessageError) as error:
                    why[node] = self._exchange.errors.get(node, str(error))
            apart = expelled(refusals, set(self._entries) - old)
            self.refused |= apart
            for node in apart:
                by = [(n, told[node]) for n, told in refusals.items() if node in told]
                own = list(refusals.get(node, {}).items())
                who, text = (by or own)[0]
                more = f" and {len(by) - 1} more" if len(by) > 1 else ""
                why[node] = f"node {who}{more} refuses it: {text}" if by else f"it refuses: {text}"
            if not why:
                return
            self._leave(why)
            for node in why:
                del self._entries[node]


def expelled(refusals: Mapping[int, Iterable[int]], newcomers: set[int]) -> set[int]:
    """Who leaves, so that all who stay accept one another; refusals: by node, whom it refuses.

    Whoever is in most refusals first: one client that refuses all others goes alone, as does one
    that all others refuse. Of equals a newcomer first, then whoever is refused.
    """
    pairs = {(a, b) for a, others in refusals.items() for b in others}
    left: set[int] = set()
    while pairs:
        of = {node: {pair for pair in pairs if node in pair} for pair in pairs for node in pair}
        worst = max(
            of,
            key=lambda node, of=of: (  # type: ignore[misc]
                len({other for pair in of[node] for other in pair}),
                node in newcomers,
                sum(b == node for _, b in of[node]),
                node,
            ),
        )
        left.add(worst)
        pairs -= of[worst]
    return left


def _refusals(reply: Message) -> dict[str, str]:
    """Whom a member refuses, and why, by identity; {} for none."""
    record: Mapping[str, Any] = own_record(reply.content) or {}
    named, reasons = record.get("refused", []), record.get("reasons", [])
    texts = [each for part in (named, reasons) if isinstance(part, list) for each in part]
    if len(texts) != 2 * len(named) or not all(isinstance(each, str) for each in texts):
        raise MessageError("its refusal names nobody")
    return {who: shown(text) for who, text in zip(named, reasons, strict=True)}


def _agreed(reply: Message, roster: Roster) -> bool:
    try:
        return bool(field(reply, "digest", str) == roster.digest().hex())
    except MessageError:
        return False


def step_record(step: str, fields: Mapping[str, Any]) -> ConfigRecord:
    """Our record of a request."""
    return ConfigRecord({"step": step, **fields})


def field(reply: Message, name: str, kind: type) -> Any:
    """Of our record in a reply. Raises MessageError: it is not there."""
    record = own_record(reply.content)
    value = None if record is None else record.get(name)
    if not isinstance(value, kind):
        raise MessageError(f"a reply without {name!r}: does the ClientApp have secure_sum_mod?")
    return value
