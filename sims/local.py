"""Everyone in one process: a Flower Grid that calls the real ServerApp and ClientApp objects.

No Ray. Every message goes through bytes in both directions, so that a wire bug cannot hide.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.serverapp import Grid

import coordinator.flower_app as coordinator_app
import parties.flower_app as party_app
from ciphercohort.deploy.flower_commands import take_identity
from coordinator.coordinator import AskParties, Coordinator
from coordinator.costs import Costs
from coordinator.log import recorded
from coordinator.relay import relaying
from parties.verifier.party import Party
from protocols.errors import ProtocolError
from protocols.plan.protocol import may_repeat
from protocols.steps.whole import Outcome
from sims.party_process import PartyProcess, PartySpec, peak_memory_mb

SERVER_NODE = 1

log = logging.getLogger(__name__)


class LocalGrid(Grid):
    """Delivers to ClientApps of this process, one after the other, when their replies are pulled.

    addresses: party address (`local:NAME`) by Flower node id.
    """

    def __init__(self, addresses: Mapping[int, str], run_id: int = 1) -> None:
        self._run_id = run_id
        take_identity(run_id, SERVER_NODE)
        self._contexts = {
            node: Context(
                run_id=run_id,
                node_id=node,
                node_config={"party": address},
                state=RecordDict(),
                run_config={},
            )
            for node, address in addresses.items()
        }
        self._sent: dict[str, bytes] = {}

    def set_run(self, run: Any) -> None:
        """Not needed: the run is this object's."""

    @property
    def run(self) -> Any:
        """No Flower run record exists in one process."""
        return None

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Serialise and keep."""
        identifiers = []
        for message in messages:
            identifier = str(uuid.uuid4())
            _address(message, self._run_id, identifier)
            self._sent[identifier] = message_to_proto(message).SerializeToString()
            identifiers.append(identifier)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Deliver one after the other; each reply is serialised as well, and yielded."""
        for identifier in message_ids:
            request = _parse(self._sent.pop(identifier))
            context = self._contexts[request.metadata.dst_node_id]
            try:
                reply = party_app.relay(request, str(context.node_config["party"]))
            except Exception as error:
                if isinstance(error, ProtocolError) and not may_repeat(request.metadata.group_id):
                    raise  # names its culprit
                # As Flower's nodes do. The text may carry data: it stays where it arose.
                log.debug("node %d failed", context.node_id, exc_info=True)
                code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
                reply = Message(Error(code, party_app.FAILED), reply_to=request)
            yield _parse(message_to_proto(reply).SerializeToString())

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push and pull."""
        return self.pull_messages(self.push_messages(messages))


def run_session(
    session: str,
    coordinate: Callable[[coordinator_app.AskParties], None],
    handlers: Mapping[str, party_app.Handler],
) -> None:
    """Run one session: the ServerApp drives `coordinate`, ClientApps relay to `handlers`.

    handlers: by party name. Nothing is left registered afterwards, whatever happens.
    """
    local = {f"{session}/{name}": handler for name, handler in handlers.items()}
    nodes = {name: SERVER_NODE + 1 + k for k, name in enumerate(handlers)}
    addresses = {nodes[name]: f"local:{session}/{name}" for name in handlers}
    context = Context(
        run_id=1,
        node_id=SERVER_NODE,
        node_config={},
        state=RecordDict(),
        run_config={"session": session},
    )
    party_app.LOCAL.update(local)
    coordinator_app.SESSIONS[session] = (coordinate, nodes)
    try:
        coordinator_app.app(LocalGrid(addresses), context)
    finally:
        del coordinator_app.SESSIONS[session]
        for key in local:
            del party_app.LOCAL[key]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One session that came to its end; peak_memory: of any process [MB]; head: of transcript."""

    outcome: Outcome
    costs: Costs
    peak_memory: float
    head: str


def run_parties(
    coordinator: Coordinator,
    specs: Mapping[str, PartySpec],
    processes: bool,
    messages: Path | None = None,
) -> Ran:
    """One session with parties of these specs, closed whatever happens.

    processes: each in one of its own; messages: folder that keeps them, None: they are not kept.

    Raises:
        CohortError: the protocol was aborted.
    """
    members: dict[str, Party | PartyProcess] = {}
    outcomes: list[Outcome] = []

    def run(ask: AskParties) -> None:
        key, parties = coordinator.verify_key, coordinator.party_keys

        def keep(ask: AskParties) -> AskParties:
            return recorded(ask, messages, key, parties, durable=False)

        relay = any(spec.policy.replica != "none" for spec in specs.values())
        outcomes.append(coordinator.run(relaying(ask, keep) if relay else keep(ask)))

    try:
        for name, spec in specs.items():
            members[name] = PartyProcess(spec) if processes else spec.build()
        handlers: dict[str, party_app.Handler] = dict(members)
        run_session(coordinator.session, run, handlers)
    finally:
        for member in members.values():
            member.close()
        coordinator.transcript.close()
    memory = [m.peak_memory_mb for m in members.values() if isinstance(m, PartyProcess)]
    return Ran(
        outcome=outcomes[0],
        costs=coordinator.costs,
        peak_memory=max([peak_memory_mb(), *memory]),
        head=coordinator.transcript.head,
    )


def _address(message: Message, run_id: int, identifier: str) -> None:
    # Private fields that Flower's own grids fill in.
    fields = message.metadata.__dict__
    fields["_run_id"] = run_id
    fields["_src_node_id"] = SERVER_NODE
    fields["_message_id"] = identifier


def _parse(data: bytes) -> Message:
    return message_from_proto(MessageProto.FromString(data))
