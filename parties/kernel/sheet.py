"""What a run asks of a party is a sheet of numbers; the sessions believe none of it.

Each room has sheets of its own; what all of them are held to stands here.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from parties.kernel.private import Terms, public_figure
from protocols.errors import PolicyError

SLACK = 1 + 1e-9
"""What rows are held to beyond a bound, for float64."""
LEEWAY = 1 + 1e-10
"""How far a sheet's bound may be below the longest row, for two machines round differently: less
than SLACK, so that what is taken here refuses no row later, which would tell of that row."""
LARGEST = 1e40
"""Of public numbers that rows meet, and 1 / LARGEST the least of those that divide: nothing that is
made of rows overflows, here or where it is encoded."""
LEAST_UNITS = 1 << 30
"""Of a share's deviation. Rounding to the grid, or what is uniform beside it, moves each number of
two neighbours up to a unit further apart than `cost` counts, and a coarser grid costs delta."""
Floor = tuple[str, Callable[[], bool]]


def digest_of(sheet: Any) -> str:
    """SHA-256, hexadecimal; a float's shortest digits tell it from every other."""
    return hashlib.sha256(json.dumps(asdict(sheet), sort_keys=True).encode()).hexdigest()


def hold(
    what: str,
    sheet: Any,
    name: str,
    key: str,
    terms: Terms,
    floors: Iterable[Floor],
    others: int = 1,
) -> None:
    """Refuse what no honest plan gives, or this owner has not agreed to.

    what: a sheet is of; name, key: this party's; floors: of its room; others: members that must be
    there beside those whom the owner fears, itself among them.

    Raises:
        PolicyError: names the first field that does not hold.
    """
    roster, parties = dict(sheet.roster), len(sheet.roster)
    every: list[Floor] = [
        ("roster: not this party's key", lambda: roster.get(name) == key),
        ("roster: names or keys twice", lambda: len({*roster.values()}) == len(roster) == parties),
        ("roster: too few members", lambda: parties >= terms.colluders + others),
    ]
    if hasattr(sheet, "law"):
        exact = "law: none, and exact sums are not agreed to"
        every.append((exact, lambda: bool(sheet.law) or terms.exact))
        if sheet.law:
            most = parties - terms.colluders
            every.append(("honest: too many", lambda: 1 <= sheet.honest <= most))
    for field, holds in (*every, *floors):
        if not holds():
            raise PolicyError(
                f"the sheet of {what} is refused: {field} ({parties} members; this party fears "
                f"{terms.colluders} that collude: min_colluders in its [policy])"
                if field.startswith("roster: too few")
                else f"the sheet of {what} is refused: {field}"
            )


def of_rows(
    sheet: Any,
    name: str,
    rows: Any,
    terms: Terms,
    least: Callable[[], float],
    held: float = 1.0,
) -> list[Floor]:
    """Of rows under CKKS, whose mean has Gaussian noise.

    least: that two rows' parts are apart; held: norm that rows are clipped to once a matrix has
    changed them.
    """
    names, booked = [*dict(sheet.roster)], terms.booked
    place = names.index(name) if name in names else 0
    found: list[Floor] = [
        ("rows", lambda: len(sheet.rows) == len(sheet.roster) and sheet.rows[place] == rows.rows),
        ("rows: of a party", lambda: all(type(n) is int and n > 0 for n in sheet.rows)),
        ("rounds", lambda: type(sheet.rounds) is int and sheet.rounds > 0),
        # Of fewer columns, one sum would stand beside the noise of several.
        ("matrix: not square", lambda: is_square(sheet.matrix, rows.num_features)),
        # A refusal of longer rows would tell of one, and so would one of what overflows.
        ("matrix", lambda: bool((np.abs(np.array(sheet.matrix, np.float64)) <= LARGEST).all())),
        ("bound", lambda: sheet.bound * LEEWAY >= longest(rows, sheet.matrix, held)),
        ("bound: too large", lambda: 0 < sheet.bound <= LARGEST),
        ("gamma", lambda: 0 <= sheet.gamma <= 1 - 2**-20),
    ]
    if sheet.law:
        found += [
            ("law", lambda: (booked or (sheet.law,))[0] == sheet.law == "gaussian"),
            ("units: no noise", lambda: type(sheet.units) is int and sheet.units >= LEAST_UNITS),
        ]
    if sheet.law and booked is not None:
        found += [
            ("moves", lambda: sheet.moves * SLACK >= least()),
            ("moves: nothing", lambda: sheet.moves > 0),
            ("noise: too little", lambda: cost(sheet) <= booked[1] * SLACK),
        ]
    return found


def fits(size: float) -> bool:
    """Whether what rows are multiplied with, or divided by, lets nothing overflow."""
    return 1 / LARGEST <= abs(size) <= LARGEST


def is_square(matrix: Sequence[Sequence[float]], features: int) -> bool:
    """Whether a matrix is none, or maps rows of so many features to such."""
    return not matrix or np.shape(matrix) == (features, features)


def longest(rows: Any, matrix: Sequence[Sequence[float]] = (), held: float = math.inf) -> float:
    """What no row is longer than, by its public schema; 0 where there is none.

    matrix: that rows are multiplied by, by rows, and then clipped to `held`; none: neither.
    """
    found = float(getattr(public_figure(rows, "schema"), "norm_bound", 0.0))
    return min(held, found * float(np.linalg.norm(np.array(matrix), 2))) if matrix else found


def cost(sheet: Any) -> float:
    """mu^2 of all rounds composed, of noise on means, at the shares of the honest."""
    sigma = math.ldexp(sheet.units, -sheet.bits) * math.sqrt(sheet.honest)
    return float(sheet.rounds * (sheet.moves / (sum(sheet.rows) * sigma)) ** 2)
