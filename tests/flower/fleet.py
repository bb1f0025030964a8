"""A SuperLink in memory: nodes' connections with the words of 1.30 or 1.41, and a grid on them.

Messages travel as Flower's own objects, deflated, each pulled and pushed by itself.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from flwr.app import Message
from flwr.supercore.inflatable import inflatable_object, inflatable_utils

from ciphercohort.deploy.flower_commands import take_identity
from parties import flower_link

SERVER = 1
RUN = 5


class Fleet:
    """sessions: a push has a session, as in 1.41; late: how often an object is not there yet."""

    def __init__(self, *, sessions: bool = False, late: int = 0) -> None:
        self.sessions, self.late = sessions, late
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.asked: dict[str, int] = defaultdict(int)
        self.inbox: dict[int, list[tuple[Message, Any]]] = defaultdict(list)
        self.outbox: dict[str, tuple[Message, Any]] = {}
        self.confirmed: list[str] = []
        self.broken: set[str] = set()
        self.over = False
        self.options: dict[str, Any] = {}
        take_identity(RUN, SERVER)

    # -- the node's side ---------------------------------------------------------------------------

    def parts(self, node: int = 7) -> tuple[Any, ...]:
        """What `_init_connection` yields."""
        return (
            node,
            lambda: self.receive(node),
            self.send,
            self.never,
            self.never,
            self.pull,
            self.push_in_session if self.sessions else self.push,
            lambda run, identifier: self.confirmed.append(identifier),
        )

    @contextmanager
    def connection(
        self,
        *,
        server_address: str,
        insecure: bool,
        root_certificates: Any,
        authentication_keys: Any,
        max_retries: Any,
        max_wait_time: Any,
    ) -> Iterator[tuple[Any, ...]]:
        """In place of `_init_connection`."""
        self.options = dict(locals())
        yield self.parts()

    def receive(self, node: int) -> tuple[Message, Any] | None:
        """The next message without its content, and the tree of its objects."""
        self._raise_if_over()
        with self.lock:
            return self.inbox[node].pop(0) if self.inbox[node] else None

    def pull(self, run: int, identifier: str) -> bytes:
        """One object, once it is there."""
        assert run == RUN
        self._raise_if_over()
        if identifier in self.broken:
            raise ConnectionError("row 17 of the node's own store")
        with self.lock:
            self.asked[identifier] += 1
            if self.asked[identifier] <= self.late or identifier not in self.objects:
                raise inflatable_utils.ObjectUnavailableError(identifier)
            return self.objects[identifier]

    def send(self, reply: Message, tree: Any, seconds: float) -> Any:
        """Announce a reply; which objects are wanted."""
        self._raise_if_over()
        assert seconds >= 0 and reply.metadata.message_id == tree.object_id
        wanted = {part.object_id for part in inflatable_object.iterate_object_tree(tree)}
        with self.lock:
            wanted -= set(self.objects)
            self.outbox[reply.metadata.reply_to_message_id] = reply, tree
        return (wanted, "session") if self.sessions else wanted

    def push(self, run: int, identifier: str, content: bytes) -> None:
        """One object of a reply."""
        assert run == RUN and identifier not in self.objects
        self.objects[identifier] = content

    def push_in_session(self, run: int, session: str, identifier: str, content: bytes) -> None:
        """The same in 1.41."""
        assert session == "session"
        self.push(run, identifier, content)

    def never(self, *_: Any) -> Any:
        """What is shipped for a run is not even fetched."""
        raise AssertionError("a run's configuration or its code is fetched")

    def over_now(self, run: int, identifier: str) -> bytes:
        """The run ends while an object is pulled."""
        self.over = True
        return Fleet.pull(self, run, identifier)

    def _raise_if_over(self) -> None:
        if self.over:
            raise flower_link._run_is_over()

    # -- the grid ----------------------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Queue them for their nodes; their objects come later."""
        identifiers = []
        for message in messages:
            message.metadata.__dict__["_run_id"] = RUN
            message.metadata.__dict__["_src_node_id"] = SERVER
            message.metadata.__dict__["_message_id"] = message.object_id
            with inflatable_object.no_object_id_recompute():
                tree = inflatable_object.get_object_tree(message)
                parts = inflatable_object.get_all_nested_objects(message)
                bare = _messages().remove_content_from_message(message)
                with self.lock:
                    self.inbox[message.metadata.dst_node_id].append((bare, tree))
                for identifier, part in parts.items():
                    self.objects[identifier] = part.deflate()
            identifiers.append(tree.object_id)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Replies to these messages, whole."""
        found = []
        for identifier in message_ids:
            with self.lock:
                reply = self.outbox.pop(identifier, None)
            if reply is not None:
                found.append(self.inflate(reply[1]))
        return found

    def inflate(self, tree: Any) -> Message:
        """A message from its objects."""
        whole: Message = inflatable_utils.pull_and_inflate_object_from_tree(
            tree, lambda name: self.pull(RUN, name), self.confirmed.append, return_type=Message,
            initial_backoff=0.01,
        )  # fmt: skip
        whole.metadata.__dict__["_message_id"] = tree.object_id
        return whole


def _messages() -> Any:
    """1.41 has them elsewhere."""
    try:
        return import_module("flwr.app.message")
    except ImportError:
        return import_module("flwr.common.message")
