"""`python -m tests.delete [ROOM …] [--tests PATH …]`: see `delete`; exit code 1 if one fails."""

from __future__ import annotations

import argparse
import sys

from tests.delete import delete
from tests.delete.table import ROOMS


def main() -> int:
    """Print what each room does to the rest."""
    parser = argparse.ArgumentParser(prog="python -m tests.delete", description=delete.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=", ".join(ROOMS))
    parser.add_argument("--tests", nargs="+", metavar="PATH", default=["tests"])
    parser.add_argument("--collect", action="store_true")
    options = parser.parse_args()
    more = ("--collect-only", "-qq") if options.collect else ()
    unknown = [name for name in options.rooms if name not in ROOMS]
    if unknown:
        parser.error(f"room {unknown[0]!r} is not one of {', '.join(ROOMS)}")
    failed = 0
    for name in options.rooms or ROOMS:
        room, said = ROOMS[name], f"the demo runs, and tests {'load' if more else 'pass'}"
        if not options.rooms:
            said = f"not yet: {room.reason}" if room.edges else "can be removed"
        elif room.edges:
            said, failed = f"not yet: {room.reason} ({', '.join(room.edges)})", 1
        else:
            try:
                delete.rest_works(room, options.tests, *more)
            except delete.RoomError as error:
                said, failed = str(error), 1
        sys.stdout.write(f"without {name}: {said}\n")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
