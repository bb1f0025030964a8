"""`python -m ciphercohort.flower FOLDER`: the identity of a client's home folder, for pins."""

from __future__ import annotations

import sys
from pathlib import Path

from ciphercohort.flower.memory import Owner
from protocols.exchange.private_files import private_folder


def main() -> int:
    """Print the public identity, made where there is none yet."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m ciphercohort.flower FOLDER\n")
        return 2
    home = private_folder(Path(sys.argv[1]))
    owner = Owner("", home, None, False, 0, None, None)
    sys.stdout.write(owner.identity(b"").public_key().public_bytes_raw().hex() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
