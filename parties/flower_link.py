"""A node's connection to the SuperLink: the one file of parties that uses private parts of Flower.

| | 1.30 | 1.41 |
|---|---|---|
| `_init_connection` | gRPC; takes transport | HTTP |
| `send` returns | ids of the objects to push | (ids, session of the push) |
| `push_object` takes | run, id, bytes | run, session, id, bytes |
| a run that is over | flwr.common.typing | flwr.supercore.run |
| a node that is not let in | RuntimeError | SystemExit, and soon the process's end |

Any other Flower is an `UnknownFlowerError`, found before anything is dialled.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from flwr.app import Error, Message

log = logging.getLogger(__name__)

_SHARED = {
    "server_address",
    "insecure",
    "root_certificates",
    "authentication_keys",
    "max_retries",
    "max_wait_time",
}
# Objects may come later than the message that names them [s].
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.05, 1.0
# Flower's code for a message whose content is not there; the coordinator asks again.
UNAVAILABLE = 3


class UnknownFlowerError(Exception):
    """The installed Flower's private parts are not those of 1.30 or 1.41; says what differs."""


class TurnedAwayError(Exception):
    """The SuperLink did not let this node in; Flower has logged why."""


class Link:
    """Requests to this node, one after the other, and the replies.

    parts: what `_init_connection` yields.
    """

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.node_id: int = parts[0]
        self._receive, self._send = parts[1], parts[2]
        self._pull, self._push, self._confirm = parts[5:8]
        self._objects = import_module("flwr.supercore.inflatable.inflatable_object")
        self._tools = import_module("flwr.supercore.inflatable.inflatable_utils")
        self._over: type[Exception] = _run_is_over()

    def receive(self) -> Message | None:
        """The next request, whole; None where there is none.

        A request whose content cannot be had is answered with an error, unless its run is over.
        """
        try:
            found = self._receive()
        except self._over:
            return None
        if found is None:
            return None
        message, tree = found
        run = message.metadata.run_id
        try:
            whole: Message = self._tools.pull_and_inflate_object_from_tree(
                tree,
                partial(self._pull, run),
                partial(self._confirm, run),
                return_type=Message,
                max_tries_per_object=None,
                initial_backoff=_FIRST_BACKOFF,
                backoff_cap=_LONGEST_BACKOFF,
            )
        except Exception as error:
            log.warning("a request did not arrive whole: %s", error)
            self.reply(Message(Error(UNAVAILABLE, "not whole"), reply_to=message), 0.0)
            return None
        whole.metadata.__dict__["_message_id"] = tree.object_id
        return whole

    def reply(self, reply: Message, seconds: float) -> None:
        """Send a reply; seconds: what it took to make."""
        run = reply.metadata.run_id
        reply.metadata.__dict__["_message_id"] = reply.object_id
        try:
            with self._objects.no_object_id_recompute():
                tree = self._objects.get_object_tree(reply)
                parts = self._objects.get_all_nested_objects(reply)
                wanted, *session = _listed(self._send(reply, tree, seconds))
                push = partial(self._push, run, *session)
                self._tools.push_objects(parts, push, object_ids_to_push=wanted)
        except self._over:
            log.warning("run %s is over: a reply to it is dropped", run)


def _listed(sent: Any) -> tuple[Any, ...]:
    """(ids to push) of 1.30, (ids to push, session) of 1.41."""
    return sent if isinstance(sent, tuple) else (sent,)


def _run_is_over() -> type[Exception]:
    for module in ("flwr.supercore.run", "flwr.common.typing"):
        try:
            return cast(type[Exception], import_module(module).RunNotRunningException)
        except (ImportError, AttributeError):
            continue
    raise UnknownFlowerError("it has no RunNotRunningException")


def check_flower() -> Any:
    """Flower's `_init_connection`, if the rest is there as well.

    Raises:
        UnknownFlowerError: the installed Flower is built otherwise.
    """
    try:
        connection = import_module("flwr.supernode.start_client_internal")._init_connection
        objects = import_module("flwr.supercore.inflatable.inflatable_object")
        tools = import_module("flwr.supercore.inflatable.inflatable_utils")
        used = [objects.no_object_id_recompute, objects.get_object_tree]
        used += [objects.get_all_nested_objects, tools.push_objects]
        pulled = inspect.signature(tools.pull_and_inflate_object_from_tree).parameters
        taken = set(inspect.signature(connection).parameters)
        _run_is_over()
    except (ImportError, AttributeError) as error:
        raise UnknownFlowerError(str(error)) from None
    if taken - {"transport"} != _SHARED:
        raise UnknownFlowerError(f"its connection takes {', '.join(sorted(taken ^ _SHARED))}")
    if not {"max_tries_per_object", "initial_backoff", "backoff_cap"} <= set(pulled):
        raise UnknownFlowerError("its objects are pulled otherwise")
    return connection


@contextmanager
def connected(
    superlink: str,
    root_certificates: bytes,
    key: EllipticCurvePrivateKey,
    max_wait_time: float | None = None,
) -> Iterator[Link]:
    """This node, online until the block ends.

    superlink: HOST:PORT; root_certificates: PEM; key: of the node; max_wait_time: longest time
    without a connection [s], None: for ever. What is raised inside the block ends it and is logged.

    Raises:
        TurnedAwayError: the key is not registered, or the certificate of another authority.
        UnknownFlowerError: the installed Flower is built otherwise.
    """
    connection = check_flower()
    grpc = "transport" in inspect.signature(connection).parameters
    with ExitStack() as stack:
        try:
            opened = connection(
                **({"transport": "grpc-rere"} if grpc else {}),
                server_address=superlink,
                insecure=False,
                root_certificates=root_certificates,
                authentication_keys=(key, key.public_key()),
                max_retries=None,
                max_wait_time=max_wait_time,
            )
            parts = stack.enter_context(opened)
        except (RuntimeError, SystemExit) as error:  # 1.30 yields nothing, 1.41 ends the process
            if isinstance(error, SystemExit) and not error.code:
                raise  # it is told to end
            raise TurnedAwayError from None
        yield Link(parts)


def installed() -> str:
    """The installed Flower's version."""
    return version("flwr")
