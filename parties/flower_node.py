"""A SuperNode that relays by itself: one process for all messages of all runs.

Flower's own SuperNode starts a process for every message and looks for messages every 3 s. This one
takes the same options, authenticates itself by the same key, and hands what it receives to the
party's agent. It is started with Flower's own command, which takes its place where the installed
Flower is unknown: `python -m parties.flower_node flower-supernode --superlink HOST:PORT …`.

Security: nothing that a coordinator ships is fetched, let alone loaded, so that no code of a run
can reach this process, another run or an installed module. No port is opened: there is no process
of its own to serve. Of an error the coordinator learns that there was one.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Protocol

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Error, Message, MessageType

from parties.agent.doors import CONNECTIONS
from parties.flower_app import FAILED, RAISED, answered
from parties.flower_link import (
    TurnedAwayError,
    UnknownFlowerError,
    check_flower,
    connected,
    installed,
)
from parties.launch import OFFLINE, ONLINE, log_lines
from protocols.errors import ParameterError
from protocols.exchange.validity import check, shown_at
from protocols.exchange.waits import pause

log = logging.getLogger(__name__)

# A request that is answered within it is alone with the party.
ALONE_SECONDS = 1.0
# What the log says of each request.
ANSWERED = "%s: answered in %.3f s, sent in %.3f s"


class Requests(Protocol):
    """Where requests come from."""

    def receive(self) -> Message | None:
        """The next one; None where there is none."""
        ...

    def reply(self, reply: Message, seconds: float) -> None:
        """Send a reply; seconds: what it took to make."""
        ...


def serve(requests: Requests, address: str, wait: Callable[[float], object] = time.sleep) -> None:
    """Relay requests to the party at an address, until something raises.

    One that waits for a person does not keep back those that come after it, such as the word that
    the run is over: up to `CONNECTIONS` are with the party at once.
    """
    heard, done, waiting = time.monotonic(), queue.SimpleQueue[tuple[Message, float]](), 0
    while True:
        asked = time.monotonic()
        request = requests.receive() if waiting < CONNECTIONS else None
        now = time.monotonic()
        silence = pause(now - heard, now - asked)
        if request is not None:
            waiting += 1
            Thread(target=_answer, args=(request, address, done), daemon=True).start()
            silence = ALONE_SECONDS
        if not waiting:
            wait(silence)
            continue
        with suppress(queue.Empty):
            reply, seconds = done.get(timeout=silence)
            waiting -= 1
            heard = time.monotonic()
            requests.reply(reply, seconds)
            log.info(ANSWERED, reply.metadata.group_id, seconds, time.monotonic() - heard)


def _answer(request: Message, address: str, done: queue.SimpleQueue[tuple[Message, float]]) -> None:
    began = time.monotonic()
    reply = answer(request, address)
    done.put((reply, time.monotonic() - began))


def answer(request: Message, address: str) -> Message:
    """The party's reply, or `flower_app.FAILED`; only queries are relayed."""
    if request.metadata.message_type != MessageType.QUERY:
        log.warning("%s is no query", request.metadata.group_id)
        return Message(Error(RAISED, FAILED), reply_to=request)
    return answered(request, address)


def options(words: Sequence[str]) -> argparse.Namespace:
    """Those of flower-supernode that matter here; `party`: of the node's configuration."""
    parser = argparse.ArgumentParser(prog="flower_node", add_help=False, allow_abbrev=False)
    parser.add_argument("--superlink", required=True)
    parser.add_argument("--root-certificates", type=Path, required=True)
    parser.add_argument("--auth-supernode-private-key", type=Path, required=True)
    parser.add_argument("--node-config", required=True)
    parser.add_argument("--max-wait-time", type=float)
    return parser.parse_known_args(words)[0]


def party_of(node_config: str) -> str:
    """The address in party="ADDRESS". Raises ParameterError: there is none."""
    try:
        return str(msgspec.toml.decode(node_config)["party"])
    except (msgspec.DecodeError, KeyError):
        raise ParameterError(f'--node-config {node_config} has no party="ADDRESS"') from None


def node_key(path: Path) -> EllipticCurvePrivateKey:
    """Flower's key of this node. Raises ParameterError: it is none."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path} is no key of a Flower node: {error}") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ParameterError(f"{path} is no elliptic-curve key")
    return key


def main(words: Sequence[str]) -> int:
    """Relay until stopped; words: Flower's own command with its options.

    Returns 1 where the connection is given up, EX_TEMPFAIL where the SuperLink does not let the
    node in (yet), EX_CONFIG where a certificate is not valid today; else a signal alone ends it.
    """
    log_lines("%(asctime)s %(message)s")
    logging.getLogger("flwr").propagate = False  # it has a handler of its own
    try:
        check_flower()
    except UnknownFlowerError as error:
        log.warning(
            "Flower %s differs from 1.30 and 1.41 (%s): its own SuperNode runs instead, with a "
            "process for every message, which takes seconds a round",
            installed(),
            error,
        )
        os.execv(shutil.which(words[0]) or words[0], list(words))  # noqa: S606 - our own arguments
    given = options(words)
    address, key = party_of(given.node_config), node_key(given.auth_supernode_private_key)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the SuperLink is told
    roots = given.root_certificates.read_bytes()
    try:
        check(roots, str(given.root_certificates), "get a new invitation")
        shown = shown_at(given.superlink)
        if shown is not None:
            check(shown, f"the certificate at {given.superlink}", "its administrator renews it")
    except ParameterError as error:
        log.error("%s", error)
        return os.EX_CONFIG
    try:
        with connected(given.superlink, roots, key, given.max_wait_time) as link:
            log.info("%s: %d", ONLINE, link.node_id)
            serve(link, address)
    except TurnedAwayError:
        return os.EX_TEMPFAIL
    finally:
        log.info(OFFLINE)
    return 1


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        logging.exception("the relay ends")
        code = 1
    # A thread that asks for a lost SuperLink must not keep a process that does nothing.
    logging.shutdown()
    os._exit(code)
