"""What a run, and whatever follows from it, has to say of itself: a toy ring, seeds, exact sums.

Every writer of documents and every command takes it from here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocols.words import EXACT_SUMS, INSECURE, NOT_PRIVATE

if TYPE_CHECKING:
    from ciphercohort.job.config import SimulationConfig
    from protocols.plan.run_plan import RunPlan

log = logging.getLogger(__name__)

MARK, TOY, SEEDED = "EXACT SUMS", "INSECURE", "NOT PRIVATE"
"""Of reports and of the fields of JSON documents."""
SECURE = "secure"
"""The profile of plans without a toy ring; secure sums take no other."""
CONSENT = "every owner of a deployment has to accept that, by exact_sums in its policy"


def opens_exact_sums(config: SimulationConfig, plan: RunPlan) -> bool:
    """Whether training opens some, or what follows it."""
    follows = config.epsilon is None and (config.inference or config.evaluate)
    follows |= config.ends_at_maximum
    return plan.opens_exact_sums or follows


def marks(*, insecure: bool = False, seeded: bool = False, exact: bool = False) -> dict[str, str]:
    """Sentences for a person, by mark.

    insecure: it is of a toy ring, or of a model that was trained on one; seeded: so is its noise;
    exact: sums open without noise. Secure sums are of 128 bits, and their plans no toys.
    """
    found = {TOY: insecure and INSECURE, SEEDED: seeded and NOT_PRIVATE, MARK: exact_words(exact)}
    return {mark: words for mark, words in found.items() if words}


def insecure_fields(is_so: bool) -> dict[str, str]:
    """For a JSON document: of a toy ring, or of what was trained on one."""
    return {TOY: "toy ring without security; for tests only"} if is_so else {}


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
