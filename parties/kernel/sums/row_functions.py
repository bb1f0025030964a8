"""Row functions by the kind that a sheet names; code of its own a sheet cannot hand in."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


_STUDY = "parties.kernel.sums.study."
LATE: Mapping[str, str] = {
    "description": f"{_STUDY}described:Described",
    "lifetimes": f"{_STUDY}lifetimes:Lifetimes",
    "risk-sets": f"{_STUDY}hazards:RiskSets",
    "cox-rows": f"{_STUDY}hazards:CoxRows",
    "generalised": f"{_STUDY}glm:Generalised",
}
"""Those that are loaded when a sheet names one."""


def row_function(given: Mapping[str, Any]) -> RowFunction:
    """The one that fields describe.

    Raises:
        ParameterError: there is none of that kind, or a field is out of range.
    """
    name = str(given.get("kind"))
    kind = pkgutil.resolve_name(LATE[name]) if name in LATE else KINDS.get(name)
    if kind is None:
        raise ParameterError(f"row function {given.get('kind')!r} is not known")
    return made(kind, given)
