"""One request to each of some nodes, and their replies as they arrive."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from protocols.errors import CohortError, MessageError

log = logging.getLogger("flwr.secure-sum")
LATE = "no reply in time"
_LONGEST_REASON, _LONGEST_ERROR = 4096, 500
_FIRST_POLL, _SLOWEST_POLL = 0.005, 0.1
# Of the time waited so far: by so little polling makes a round longer.
_POLL_SHARE = 0.02


class Exchange:
    """seconds: that each exchange may take; ttl: of its messages; errors: of the last one, by node.

    Holds the grid and is held by no grid: Flower's connection ends with its last user, and not in a
    cycle that is collected when the interpreter ends.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.seconds = 3600.0
        self.ttl: float | None = None
        self.errors: dict[int, str] = {}

    def ask(
        self,
        kind: str,
        contents: Mapping[int, RecordDict],
        group: str,
        on_reply: Callable[[int, Message], None] | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> dict[int, Message]:
        """Send, and take replies as they arrive for so long; those without error, by node.

        on_reply: takes each reply, which is then not kept; may raise. enough: whether the replies
        so far will do; the others are then not waited for.
        """
        messages = [
            Message(content, node, kind, group_id=group, ttl=self.ttl)
            for node, content in contents.items()
        ]
        waiting = dict(zip(self._grid.push_messages(messages), contents, strict=True))
        del messages
        found: dict[int, Message] = {}
        began = time.monotonic()
        self.errors = {}
        while waiting and not enough():
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                try:
                    if reply.has_error():
                        raise MessageError(readable(reply.error.reason or "no reason"))
                    if on_reply is None:
                        found[node] = reply
                    else:
                        on_reply(node, reply)
                except Exception as error:
                    # Whatever a node sends spoils its own part only.
                    known = isinstance(error, CohortError)
                    told = str(error) if known else f"a malformed reply: {error!r}"
                    self.errors[node] = shown(told)
                    log.warning("node %d: %s", node, self.errors[node])
            waited = time.monotonic() - began
            if not waiting or waited > self.seconds:
                break
            time.sleep(min(max(_FIRST_POLL, _POLL_SHARE * waited), _SLOWEST_POLL))
        for node in waiting.values():
            self.errors[node] = LATE
        return found


def sentences(errors: Mapping[int, str]) -> str:
    """What some nodes said: each sentence once."""
    nodes: dict[str, list[int]] = {}
    for node, text in errors.items():
        nodes.setdefault(text, []).append(node)
    return "; ".join(
        f"node {who[0]}{f' and {len(who) - 1} more' if who[1:] else ''}: {text}"
        for text, who in list(nodes.items())[:3]
    )


def shown(text: str) -> str:
    """A client's words in one line of a log."""
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST_ERROR])


def readable(reason: str) -> str:
    """A client's own sentence, without the class names and traces that Flower and Ray put round it.

    They read "<class '…'>:<'sentence'>", and lines of a trace may stand before the sentence.
    """
    last = reason[-_LONGEST_REASON:].strip().removesuffix("'>").splitlines()[-1:] or [""]
    return re.sub(r"^.*(?:Exception: |:<')", "", last[0])
