"""`python -m tests.rooms [--write]`: see `rooms`; exit code 1 where the house is not as it says."""

from __future__ import annotations

import argparse
import json
import sys

from tests.rooms.rooms import (
    BUDGETS,
    TABLE,
    circles,
    crowded,
    is_product,
    problems,
    rooms,
    spent,
    table,
)


def main() -> int:
    """Print, and say what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.rooms", description=__doc__)
    parser.add_argument("--write", action="store_true", help="take what is there as the table")
    names, found = table(), rooms(table())
    if parser.parse_args().write:
        due = {name: -(-found[name].lines // 50) * 50 for name in names}
        TABLE.write_text(json.dumps(due, indent=2) + "\n")
    print(f"{'room':30}{'lines':>8}{'at most':>9}{'modules':>9}")
    for name, room in found.items():
        most = f"{names[name]:,}" if name in names else ""
        print(f"{name:30}{room.lines:8,}{most:>9}{room.modules:9,}")
    whole = sum(room.lines for name, room in found.items() if is_product(name))
    print(f"{'product':30}{whole:8,}")
    print(f"\n{'budget':30}{'lines':>8}{'meant':>9}")
    for name, budget in BUDGETS.items():
        print(f"{name:30}{spent(budget, found):8,}{budget.lines:9,}  {budget.over}".rstrip())
    print(f"\nfolders with many entries: {crowded() or 'none'}")
    print(f"import circles: {[*circles()] or 'none'}")
    wrong = [*problems()]
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
