"""An owner's kernel behind a channel: whoever drives it asks by name, and gets what sessions give.

The other side has plans, messages and hostile bytes, and no row, key or noise. It is believed
nothing: what it may ask is in a table, what it hands over is checked by the sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from parties.kernel.channel import Channel, Handle
from parties.kernel.private import HiddenError
from parties.kernel.run import Run
from parties.kernel.sheet import digest_of
from protocols.errors import CohortError, DataError, MessageError, PolicyError
from protocols.exchange.signed_values import SIGNED

if TYPE_CHECKING:
    from parties.agent.owner import Owner

log = logging.getLogger(__name__)
T = TypeVar("T")

SHARED = ("begin", "erase")
QUIET = (*SHARED, "agree_pads", "take_keys", "hold", "add_public_shares", "stand_in", "missing")
"""What shows nothing; each other call is counted on disk before it is answered."""
_KEYS = (
    *("public_share", "relinearisation_first", "rotation_share", "add_public_shares"),
    *("hold_relinearisation", "hold_decryption", "open_reply", "missing"),
)
METHODS: Mapping[str, tuple[str, ...]] = {
    "CoveredKeys": (*_KEYS, "cover_key", "deal", "hold", "stand_in"),
    "KeySession": _KEYS,
    "ModelSession": ("pad_key", "agree_pads", "take_keys", "gradient", "refresh"),
    "RowsSession": ("contribute", "hold_refresh"),
    "SumsSession": ("mask_key", "masked_secret", "round"),
}
"""What may be asked of a session, or read of one, beside SHARED."""
COMMITTED = b"ciphercohort/commitment/1\0"
OWN_ROWS = (COMMITTED + b"cover-refresh/",)
OWN = (
    *(COMMITTED + step for step in (b"relinearise\0", b"decrypt\0", b"cover-decrypt\0")),
    COMMITTED + b"refresh/",
    *(b"ciphercohort/mask-key/1\0", b"ciphercohort/pad-key/1\0", b"ciphercohort/cover-key/1\0"),
    SIGNED,
)
"""What the kernel signs for itself alone: ephemeral keys, sheets that it has checked, and replies
that it keeps until all have signed what was asked; of rows, refreshes that are repeated as well."""
ACCOUNT, STORE = (
    ("require", "reserve", "spend", "commit"),
    (*("record", "open_session", "latest", "begin", "end", "decided", "decisions"),),
)


class Serving:
    """Answers one call after the other, until the other side is gone."""

    def __init__(self, owner: Owner, channel: Channel) -> None:
        self._owner, self._channel = owner, channel
        self._run: Run | None = None
        self._rows: list[tuple[tuple[Any, ...], Any]] = []
        self._opened: list[Any] = []
        self._made_of: dict[str, Any] = {}  # by sheet: rows and stream, the same after a restart
        self._undo: tuple[int, Callable[[], None]] | None = None  # of the last call that has one
        self._calls = 0  # of this run, that may show something
        self._has_begun = self._is_saved = False
        self.driven, self.answered = None, 0  # of a driver's state, while it is kept
        self._public: dict[str, Callable[..., Any]] = {
            "begin": self._begin,
            "sign": self._sign,
            "peers": lambda: dict(owner.peers()),
            "account": self._account,
            "commitment": lambda: self._of.commitment,
            "agree": self._agree,
            "reveal": lambda signatures: self._of.reveal(signatures),
            "take_back": self._take_back,
            "store": self._store,
            "save": self._save,
            "resume": self._resume,
        }
        self._private: dict[str, Callable[..., Any]] = {
            "used": self._used,
            "open": self._open,
            "call": self._call,
            "undo": self._undone,
            "row_seal": self._row_seal,
        }

    def also(self, **calls: Callable[..., Any]) -> None:
        """More that may be asked; nothing of rows or keys."""
        self._public |= calls

    def serve(self) -> None:
        """Until the other side is gone; then everything secret is forgotten."""
        try:
            while True:
                try:
                    answer = self._answer(self._channel.receive())
                except MessageError as error:
                    self._channel.send(("refused", "MessageError", str(error), False))
                    return
                except PolicyError as error:  # a record of a protocol that its owner leaves out
                    answer = "refused", "PolicyError", str(error), False
                try:
                    self._channel.send(answer)
                except MessageError as error:
                    log.error("a reply does not pass: %s", error)
                    self._channel.send(("refused", "MessageError", "the reply does not pass"))
        except (EOFError, OSError):
            return
        finally:
            self._end(is_kept=self._is_saved)

    def _answer(self, asked: Any) -> tuple[Any, ...]:
        if not (isinstance(asked, tuple) and asked and isinstance(asked[0], str)):
            return "refused", "MessageError", "this is no call", False
        name, *values = asked
        private = name in self._private
        handler = (self._private if private else self._public).get(name)
        if handler is None:
            return "refused", "MessageError", "there is no call of this name", False
        try:
            with self._of.private if private else nullcontext():
                found = handler(*values)
        except HiddenError as hidden:
            _tell_owner(name, hidden.__cause__)
            self._end()
            return ("hidden",)
        except CohortError as error:
            culprit = getattr(error, "culprit", None)
            return "refused", type(error).__name__, str(error), False, culprit
        except Exception:
            log.exception("the call %r failed", name[:40])
            return "refused", "MessageError", "the call is malformed", False
        return "done", found, bool(private and self._of.private.touched)

    # -- runs -------------------------------------------------------------------------------------

    @property
    def _of(self) -> Run:
        if self._run is None:
            raise PolicyError("no run has begun, or it is over")
        return self._run

    def _begin(self) -> None:
        self._end()
        self._has_begun = True
        self._run = self._owner.begin()

    def _end(self, is_kept: bool = False) -> None:
        """is_kept: another process goes on from its state, under the same payment."""
        if self._run is not None and not is_kept:
            self._run.take_back()
        self._forget()
        self._run, self._rows, self._calls = None, [], 0

    def _take_back(self) -> None:
        """No session outlives this: another plan's sheets would be signed beside it."""
        self._of.take_back()
        self._forget()

    def _forget(self) -> None:
        for session in self._opened:
            session.erase()
        self._opened, self._undo, self._made_of, self._is_saved = [], None, {}, False

    def _used(self, view: str, digest: str, held_out: Any, *plans: str) -> Handle:
        run = self._of
        rows = run.rows if not view else run.views.find(view, digest)
        if rows is None:
            raise PolicyError("this party has no such view of its rows")
        self._rows.append(((view, digest, held_out), run.used(rows, held_out, *plans)))
        return Handle(len(self._rows) - 1)

    def _row_seal(self, handle: Handle, plan: str) -> str:
        asked, rows = _at(self._rows, handle)
        if asked not in [own for own, _ in self._made_of.values()]:
            raise PolicyError("rows are sealed that a session of this run has, and no others")
        held_out = asked[2]
        # Of two draws, or halves of one, it never tells whether they have the same rows.
        draw = "" if held_out is None else f"/{held_out.draw}/{held_out.judged}"
        return self._of.row_seal(rows, f"{plan}{draw}")

    def _open(self, sheet: Any, handle: Handle, stream: str) -> tuple[Handle, bytes | None]:
        asked, rows = _at(self._rows, handle)
        made_of, digest = (asked, stream), digest_of(sheet)
        if self._made_of.get(digest, made_of) != made_of:
            raise PolicyError("this session has begun on other rows, or with other coins")
        session = self._of.open(sheet, rows, stream, **self._owner.beside(sheet))
        self._made_of[digest] = made_of
        self._opened.append(session)
        seed = session.seed if getattr(session, "begun", False) else None
        return Handle(len(self._opened) - 1), seed

    def _agree(self, plan: str, commitments: Mapping[str, str]) -> Any:
        self._count()  # set back, it could sign others once its seed is known
        return self._of.agree(str(plan), commitments)

    def _count(self) -> None:
        self._calls += 1
        self._owner.store.count(self._of.number, self._calls)

    def _call(self, handle: Handle, method: str, values: Sequence[Any], named: Any) -> Any:
        session = _at(self._opened, handle)
        kind = type(session).__name__
        if method not in (*SHARED, *METHODS[kind]):
            raise MessageError(f"{kind} has no method of this name to call")
        if method not in QUIET:
            self._count()
        found = getattr(session, method)
        found = found(*values, **named) if callable(found) else found
        if callable(found):
            self._undo, found = (self._calls, found), None
        return found

    def _undone(self) -> None:
        calls, undo = self._undo or (-1, None)
        if undo is None or calls != self._calls:
            raise PolicyError("this party has answered for those that are missing: they stay so")
        self._undo = None
        undo()

    # -- what an owner has beside rows ------------------------------------------------------------

    def _sign(self, text: bytes) -> bytes:
        own = OWN if self._run and self._run.has_model else (*OWN, *OWN_ROWS)
        if bytes(text).startswith(own):
            raise PolicyError("the kernel signs its own keys and sheets, and nobody else does")
        if bytes(text).startswith(OWN_ROWS) and not self._is_of_this_run(bytes(text)):
            raise PolicyError("refreshes of this run are signed, and of no other")
        signature: bytes = self._owner.signing_key.sign(bytes(text))
        return signature

    def _is_of_this_run(self, text: bytes) -> bool:
        """Whether a commitment names the joint seed; see `signed_values.committed_text`."""
        keys = self._of.keys
        _, _, bound = text.removeprefix(COMMITTED).partition(b"\0")
        return bool(keys.begun) and bound.startswith(keys.seed)

    def _account(self, method: str, *values: Any) -> Any:
        if method not in ACCOUNT:
            raise MessageError("the account has no method of this name to call")
        if method == "reserve":
            events, more, run = values
            values = SimpleNamespace(events=tuple(events), additive_delta=more), run
        return getattr(self._of.account, method)(*values)

    def _store(self, method: str, *values: Any) -> Any:
        if method not in STORE:
            raise MessageError("the store has no method of this name to call")
        if method == "end":
            self._is_saved = False
        return getattr(self._owner.store, method)(*values)

    # -- going on in another process --------------------------------------------------------------

    def _save(self, driven: Any, answered: int) -> None:
        self._owner.store.count(self._of.number, self._calls)
        self.driven, self.answered = driven, answered
        self._is_saved = self._owner.store.save(self)
        self.driven = None

    def _resume(self) -> Any:
        """What the driver of the open session saved; sessions that it opens again go on.

        Once, before anything else: a session that is set back answers twice.
        """
        if self._has_begun:
            raise PolicyError("a session goes on when its process starts, and at no other time")
        self._begin()
        try:
            self._is_saved = self._owner.store.resume(lambda: self) is not None
        except BaseException:
            self._end()  # what was restored is not gone on from
            raise
        driven, self.driven = self.driven, None
        return driven

    def fingerprint(self) -> str:
        """Of the rows, for the store (`agent.store.Kept`)."""
        return str((self._of.views or self._of.rows).fingerprint())

    def state(self) -> list[Any]:
        """What the driver knows, and what it does not."""
        own = self._calls, self._made_of, self._of.state()
        return [self.answered, self.driven, *own]

    def restore(self, state: list[Any]) -> None:
        """Inverse of `state`. Raises PolicyError: it is not the latest."""
        self.answered, self.driven, self._calls, self._made_of, run = state
        self._of.restore(run)
        if (self._of.number, self._calls) != self._owner.store.counted():
            raise PolicyError(
                "the session state is older than what was answered: it was set back, or the agent "
                "died between an answer and its record, and the next answers could show rows"
            )


def _at(held: Sequence[T], handle: Handle) -> T:
    """What a handle stands for. Raises PolicyError: it is over, or none."""
    if not 0 <= handle.number < len(held):
        raise PolicyError("what this handle stood for is over or none")
    return held[handle.number]


def _tell_owner(name: str, error: BaseException | None) -> None:
    """In the log, which no driver sees: the words of a DataError, the trace of all else."""
    if isinstance(error, DataError):
        log.warning("refused %s: %s", name, error)
    else:
        log.error("refused %s, for this error:", name, exc_info=error)
