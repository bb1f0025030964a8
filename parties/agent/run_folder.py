"""Where a ClientApp and the agent that it starts for one run meet."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from protocols.errors import PolicyError
from protocols.exchange.private_files import private_folder

SOCKET, CARD, MEMBERS, LOG = "agent.sock", "card.json", "members.json", "agent.log"
LEFT = "left"
"""Stays: a run that a site has left has no second coordinator, and no other members."""


def run_folder(run: int, node: int) -> Path:
    """Of a run on a node: private, and short enough for a socket.

    Raises:
        PolicyError: somebody else made the folder above.
    """
    own = private_folder(Path(tempfile.gettempdir()) / f"ciphercohort-{os.getuid()}")
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        raise PolicyError(f"{own} belongs to somebody else")
    return private_folder(own / f"{run}-{node}")
