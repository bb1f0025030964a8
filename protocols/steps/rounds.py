"""A party's replies that are fixed before they are sent, step after step: see `confirmed`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import PolicyError
from protocols.exchange import Body, repeated, signed_values
from protocols.steps import restore, state_of
from protocols.steps.confirmed import CommitTerms, View
from protocols.steps.endorsed import Endorsed, of_round

if TYPE_CHECKING:
    from protocols.exchange.messages import Exchange

T = TypeVar("T")


def noting(view: View, exchange: Exchange[T], alike: Callable[[str], bool]) -> Exchange[T]:
    """The same exchange, its requests noted; alike: whether a step asks everyone the same."""
    replies: Any = None
    while True:
        try:
            asked = exchange.send(replies)
        except StopIteration as stop:
            found: T = stop.value
            return found
        if alike(asked.step):
            view.note(asked.step, next(iter(asked.bodies.values())))
        replies = yield asked


class Kernel(Protocol):
    """What keeps a reply: `parties.kernel.keys.session.KeySession`."""

    def open_reply(self, request: Body) -> Body:
        """See `Opening.open`."""
        ...


class Held(Endorsed):
    """A reply that a party's kernel made, and keeps until it is opened."""

    def __init__(self, terms: CommitTerms, name: str, kernel: Kernel) -> None:
        self._terms, self._name, self._kernel = terms, name, kernel
        self._message, self._commitments = None, {}

    def open(self, request: Body) -> Body:
        """See `Opening.open`."""
        opened = self._kernel.open_reply(request)
        self._commitments = signed_values.of_request(request)
        return opened


@dataclass(frozen=True, slots=True)
class Hold:
    """A reply to a committed step that the kernel makes and keeps: in place of the message.

    make(step, before, asked): the digest that it signs; before: view before the request `asked`.
    """

    kernel: Kernel
    make: Callable[[str, str, Body], Body]


class Rounds:
    """A party's replies that are fixed before they are sent, one step after the other.

    view: of what this party was asked; confirmed by all with each commitment.

    roster: of the run; name: this party; signing_key: its identity.
    """

    def __init__(
        self, roster: Mapping[str, str], name: str, signing_key: Ed25519PrivateKey
    ) -> None:
        self._roster, self._name, self._signing_key = roster, name, signing_key
        self._step, self._missing = "", tuple[str, ...]()
        self.begin(b"")

    def begin(self, seed: bytes) -> None:
        """From now on; seed: the joint one."""
        self._seed, self.view = seed, View(seed)
        self._last: Endorsed | None = None

    @property
    def bound_to(self) -> str:
        """View that the last commitment is bound to; empty without one."""
        return self._last.view if self._last else ""

    def commit(
        self,
        step: str,
        reply: Body | Hold,
        missing: Collection[str],
        before: str = "",
        asked: Body | None = None,
    ) -> Body:
        """Keep the reply to a step until it is opened; missing: who is covered for.

        before: view before the request `asked`, for a kernel that holds the reply.
        """
        terms = self._take(step, missing, self.view.digest)
        if isinstance(reply, Body):
            return self._last_one.commit(reply)
        self._last = Held(terms, self._name, reply.kernel)
        return reply.make(step, before, asked or Body())

    def open(self, request: Body) -> Body:
        """The reply that was committed to; see `Opening.open`."""
        if self._last is None:
            raise PolicyError("no reply is committed to")
        return self._last.open(request)

    def confirm(self, step: str, request: Body) -> None:
        """Go on only if everyone endorsed what this party opened last.

        step: that is asked; where it repeats the last one, that one comes to nothing.

        Raises:
            ProtocolError, MessageError: see `Endorsed.confirm`.
        """
        if self._last is None or not self._last.is_open or repeated(step) == self._step:
            return
        self._last.confirm(request)
        self._last = None

    def forget(self) -> None:
        """Nobody endorses what was opened last: that all have signed for it is enough."""
        self._last = None

    @property
    def _last_one(self) -> Endorsed:
        assert self._last is not None  # noqa: S101 (it was just made)
        return self._last

    def _take(self, step: str, missing: Collection[str], view: str) -> CommitTerms:
        self._step, self._missing = step, tuple(missing)
        terms = of_round(self._roster, step, self._seed, missing, view)
        self._last = Endorsed(terms, self._name, self._signing_key)
        return terms

    def state(self) -> list[Any]:
        """For `restore`; nothing in it is secret: it was sent, or will be."""
        if self._last is None:
            return [self.view.digest, None]
        held, where = isinstance(self._last, Held), (self._step, self._missing, self._last.view)
        return [self.view.digest, [where, held, state_of(self._last)]]

    def restore(self, state: list[Any], seed: bytes, kernel: Kernel | None = None) -> None:
        """Inverse of `state`; seed: the joint one; kernel: that holds a reply."""
        self.begin(seed)
        self.view.digest, last = state
        if last:
            where, held, own = last
            terms = self._take(*where)
            if held and kernel is not None:
                self._last = Held(terms, self._name, kernel)
            restore(self._last_one, own)
