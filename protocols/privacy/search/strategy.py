"""How settings of one kind are found; each search has one, and `search` lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.problem import Problem
from protocols.privacy.loss.budget import Budget
from protocols.privacy.search.utility import Moments

Floats = NDArray[np.float64]
CLIP = "or clip to a smaller norm"


@dataclass(frozen=True, slots=True)
class Strategy:
    """How settings of one kind are found.

    drafts: settings that are likely to be certified, each with its `degree` and `rounds`; merits:
    their expected log loss; setting: of a draft; check: its certificate; fails: the condition that
    fails where there is no draft; worthless(draft, loss, features): why nothing would be learnt,
    None if something is; failure(budget, features, rounds): what the iterate bound takes of delta;
    cure: beside more rows or epsilon.
    """

    drafts: Callable[[Problem], Any]
    merits: Callable[[Sequence[Any], int, Moments | None], Floats]
    setting: Callable[[Any, Problem], Any]
    check: Callable[[Any], Certificate]
    fails: str
    worthless: Callable[[Any, float, int], str | None] = lambda draft, loss, features: None
    failure: Callable[[Budget, int, int], float] = lambda budget, features, rounds: (
        budget.bound_failure
    )
    cure: str = CLIP
