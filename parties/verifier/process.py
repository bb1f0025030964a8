"""The verifier's process: an agent over a kernel that is elsewhere."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from parties.agent.agent import Agent
from parties.agent.doors import Doors
from parties.agent.owner import OURS
from parties.agent.server import AgentServer
from parties.agent.settings import Driving
from parties.agent.store import codec
from parties.kernel.channel import Channel
from parties.launch import log_lines, no_core_files
from parties.verifier.driven import agent_of
from parties.verifier.remote import Calls, RemoteOwner
from protocols.errors import CohortError, PolicyError
from protocols.exchange.documents import read

log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0


def serve(handles: Sequence[int], sandbox: str) -> int:
    """Answer messages at the doors that were inherited; handles: see `verifier.__main__`."""
    no_core_files()
    log_lines("%(message)s")
    channel = Channel(socket.socket(fileno=handles[0]), codec())
    given = channel.receive()
    try:
        driving: Driving = read(given["driving"], Driving, "what drives a kernel")
        calls = Calls(channel)
        agent = agent_of(driving, RemoteOwner(calls, given["told"]))
    except CohortError as error:
        log.error("the verifier cannot begin: %s", error)
        return 1

    def told() -> dict[str, Any]:
        return {
            "budget": calls("foresee", (), 0.0, ""),
            "modules": calls("modules"),
            "verifier_modules": sorted(n for n in sys.modules if n.partition(".")[0] in OURS),
            "sandbox": sandbox,
        }

    server = AgentServer(agent, Doors.inherited(handles[1:], given["relay_uid"]), told)
    calls.ended = server.stop
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: server.stop())
    if driving.card:
        threading.Thread(target=_until_left, args=(driving, agent, server), daemon=True).start()
    calls("serving", sandbox)
    with suppress(PolicyError):  # the kernel has ended
        server.serve()
    return 0


def _until_left(driving: Driving, agent: Agent, server: AgentServer) -> None:
    """Stop once the site has left the run, or nobody has asked anything for long."""
    pause, silence = threading.Event(), driving.limits.idle_seconds
    while Path(driving.card).exists() and agent.status()["silent_seconds"] < silence:
        pause.wait(_LOOK_SECONDS)
    server.stop()
