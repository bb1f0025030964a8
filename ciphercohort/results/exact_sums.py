"""Sums without noise: what a simulation says of them, whose one person stands for all owners."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocols.words import EXACT_SUMS

if TYPE_CHECKING:
    from ciphercohort.job.config import SimulationConfig
    from protocols.plan.run_plan import RunPlan

log = logging.getLogger(__name__)

MARK = "EXACT SUMS"
"""Of reports and of the fields of JSON documents."""
CONSENT = "every owner of a deployment has to accept that, by exact_sums in its policy"


def opens_exact_sums(config: SimulationConfig, plan: RunPlan) -> bool:
    """Whether training opens some, or what follows it."""
    follows = config.epsilon is None and (config.inference or config.evaluate)
    follows |= config.ends_at_maximum
    return plan.opens_exact_sums or follows


def exact_fields(is_so: bool) -> dict[str, str]:
    """For a JSON document."""
    return {MARK: EXACT_SUMS} if is_so else {}


def exact_words(is_so: bool) -> str:
    """For a person, before a run; empty where there are none."""
    return f"{MARK}: {EXACT_SUMS}; {CONSENT}" if is_so else ""


def tell(is_so: bool) -> None:
    """Log it, before anything is opened."""
    if is_so:
        log.warning(exact_words(is_so))
