"""`python -m parties.agent FOLDER`: the process that holds an owner's rows and keys.

Input: {"passphrase": …}, one line of JSON; the process ends with its input, so with whoever began
it. Output: one line of JSON, {"socket": …, "rows": …} once the agent serves, {"error": …, "kind":
…} where it cannot.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from parties.launch import log_lines, no_core_files
from protocols.errors import CohortError, MessageError


def main(words: Sequence[str]) -> int:
    """Serve until told to stop; 1 where that is not possible."""
    no_core_files()
    log_lines("%(message)s")
    try:
        return serve(Path(words[0]), told(sys.stdin.readline()))
    except CohortError as error:
        tell({"error": str(error), "kind": type(error).__name__})
        return 1


def serve(folder: Path, passphrase: str) -> int:
    """The agent of a folder, until the input ends or the process is told to stop.

    Raises:
        CohortError: see `Owner.of` and `process.serve`.
    """
    from parties.agent import process
    from parties.agent.owner import Owner
    from parties.agent.settings import Driving, Settings

    settings = Settings.load(folder)
    owner, driving = Owner.of(settings, passphrase), Driving.of(settings)
    process.serve(
        owner,
        driving,
        Path(settings.socket),
        lambda: tell({"socket": settings.socket, "rows": owner.told()["rows"]}),
        relay_uid=settings.relay_uid,
        ends_with_input=True,
    )
    return 0


def told(line: str) -> str:
    """The passphrase. Raises MessageError: the line holds none."""
    with suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict) and isinstance(found.get("passphrase"), str):
            return str(found["passphrase"])
    raise MessageError('the first line of input is no {"passphrase": …}')


def tell(what: Mapping[str, Any]) -> None:
    """One line, for whoever began this process, as far as it is there still."""
    try:
        print(json.dumps(dict(what)), flush=True)
    except BrokenPipeError:
        # Python flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
