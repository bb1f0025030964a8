"""A Flower grid in one process, without Ray: for tests of an app and for measurements.

    grid = InProcessGrid(app, nodes={1: {"partition-id": 0}, 2: {"partition-id": 1}, …})
    SecureSum(FedAvg()).start(grid, ArrayRecord(…), num_rounds=3)

Every message goes through bytes in both directions, as between machines.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.serverapp import Grid

_SERVER, _RAISED = 1, 2


class InProcessGrid(Grid):
    """Calls a ClientApp for each message when its reply is pulled, one after the other.

    app: a ClientApp; nodes: configuration by node id; run_config: of all.

    is_complete: no node comes later; silent: nodes that do not answer; sent, received: bytes of
    content to and from each node.
    """

    is_complete = True

    def __init__(
        self,
        app: Callable[[Message, Context], Message],
        nodes: Mapping[int, Mapping[str, Any]],
        run_config: Mapping[str, Any] | None = None,
    ) -> None:
        _take_identity()
        self._app = app
        self.contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config=dict(config),
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for node, config in nodes.items()
        }
        self._sent: dict[str, bytes] = {}
        self.silent: set[int] = set()
        self.sent = dict.fromkeys(nodes, 0)
        self.received = dict.fromkeys(nodes, 0)

    def set_run(self, *arguments: Any) -> None:
        """Not needed."""

    @property
    def run(self) -> Any:
        """What legacy code looks at: the number."""
        return SimpleNamespace(run_id=1)

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """A message."""
        return Message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Serialise and keep."""
        identifiers = []
        for message in messages:
            identifier = str(uuid.uuid4())
            # What Flower's own grids fill in.
            fields = message.metadata.__dict__
            fields["_run_id"], fields["_src_node_id"] = 1, _SERVER
            fields["_message_id"] = identifier
            proto = message_to_proto(message)
            self.sent[message.metadata.dst_node_id] += proto.content.ByteSize()
            self._sent[identifier] = proto.SerializeToString()
            identifiers.append(identifier)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Deliver; each reply is serialised as well, and yielded."""
        for identifier in message_ids:
            data = self._sent.pop(identifier, None)
            if data is None:
                continue
            request = message_from_proto(MessageProto.FromString(data))
            node = request.metadata.dst_node_id
            if node in self.silent:
                continue
            try:
                reply = self.deliver(request)
            except Exception as error:
                reply = Message(Error(_RAISED, str(error)), reply_to=request)
            proto = message_to_proto(reply)
            self.received[node] += proto.content.ByteSize()
            yield message_from_proto(MessageProto.FromString(proto.SerializeToString()))

    def deliver(self, request: Message) -> Message:
        """The node's reply."""
        return self._app(request, self.contexts[request.metadata.dst_node_id])

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push and pull."""
        return list(self.pull_messages(self.push_messages(messages)))


def _take_identity() -> None:
    """Make this process the sender of messages, as 1.41 wants it."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, _SERVER
