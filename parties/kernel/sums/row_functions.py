"""Row functions by the kind that a sheet names; code of its own a sheet cannot hand in."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from parties.kernel import EVERY, named
from parties.kernel.sums.dual import DualSteps
from parties.kernel.sums.gradients import Gradients
from parties.kernel.sums.products import Information, MissingCells, Products
from parties.kernel.sums.row_function import Contributor, Own, RowFunction, made
from parties.kernel.sums.tables import Judged
from protocols.errors import ParameterError, PolicyError


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnCode(RowFunction):
    """Code that the owner of the rows brings, such as a torch module's; clip: bound of its parts.

    Raises:
        ParameterError: the clip is out of range.
    """

    kind = "own"

    clip: float

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise ParameterError(f"clip={self.clip} must be finite and positive")

    def length(self, features: int) -> None:
        """The code says it."""

    def most(self, query: str) -> float:
        """The clip."""
        return self.clip

    def of(self, rows: Any, own: Own) -> Contributor:
        """There is none here."""
        raise PolicyError("this run needs code that this party's owner does not bring")


KINDS: Mapping[str, type[RowFunction]] = {
    kind.kind: kind
    for kind in (Gradients, DualSteps, Products, Information, MissingCells, Judged, OwnCode)
}


LATE: Mapping[str, str] = {
    "description": "parties.kernel.study.described:Described",
    "lifetimes": "parties.kernel.study.lifetimes:Lifetimes",
    "risk-sets": "parties.kernel.study.hazards:RiskSets",
    "cox-rows": "parties.kernel.study.hazards:CoxRows",
    "generalised": "parties.kernel.study.glm:Generalised",
    "person-time": "parties.kernel.study.person_time:PersonTime",
}
"""Of a room of their own, which is loaded when a sheet names one."""


def row_function(given: Mapping[str, Any], protocols: Collection[str] = EVERY) -> RowFunction:
    """The one that fields describe; protocols: of an owner.

    Raises:
        ParameterError: there is none of that kind, or a field is out of range. PolicyError: it is
        of a room that the owner left out.
    """
    name = str(given.get("kind"))
    kind = named(LATE[name], protocols) if name in LATE else KINDS.get(name)
    if kind is None:
        raise ParameterError(f"row function {given.get('kind')!r} is not known")
    return made(kind, given)
