"""`python -m parties.verifier PARENT CHANNEL RELAY OWNER`: drives the kernel at the other end.

Arguments: number of the process that began it, with which it ends; descriptors of a channel
(`kernel.channel`) and of two sockets that listen. The first value on the channel says whose kernel
it is (`RemoteOwner`) and how to drive it (`Driving`); the answer says that messages are served, and
in which sandbox.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from parties.launch import end_with
from parties.verifier.sandbox import enter

PACKAGES = ("parties", "protocols")


def main(words: Sequence[str]) -> int:
    """Until the channel ends, or told to stop."""
    end_with(int(words[0]))
    # Before a library starts a thread: what threads run already is not in the sandbox.
    sandbox = enter(PACKAGES)
    from parties.verifier.process import serve

    return serve([int(word) for word in words[1:]], sandbox)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Threads that wait for a request that nobody answers any more.
    os._exit(status)
