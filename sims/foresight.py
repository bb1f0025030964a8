"""What `cohort simulate` says of its costs: before the first key, and when it knows better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from protocols.errors import CohortError
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan import RunPlan
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.updates.registry import UPDATES
from protocols.words import duration, size
from sims.config import SimulationConfig
from sims.predicted import predicted_run
from sims.result import RunResult

SHORT = 30.0
"""Nobody waits for a cheaper protocol where a run is this short [s]."""
CHEAPER = 1 / 3
"""Share of the time that a protocol must do with to be named."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """Predicted seconds of the protocol, and bytes of the busiest party; what is worth saying."""

    seconds: float
    num_bytes: int
    lines: tuple[str, ...]

    def compared(self, result: RunResult) -> str:
        """What the prediction missed."""
        seconds, num_bytes = measured(result)
        return (
            f"predicted {duration(self.seconds)} and {size(self.num_bytes)} per party; measured "
            f"{duration(seconds)} and {size(num_bytes)} (predicted / measured: "
            f"{self.seconds / seconds:.2f} and {self.num_bytes / num_bytes:.2f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"seconds": self.seconds, "bytes_per_party": self.num_bytes}


def measured(result: RunResult) -> tuple[float, int]:
    """Seconds of the protocol, and bytes of the busiest party."""
    return sum(result.costs.seconds.values()), sum(result.costs.bytes_per_party.values())


def foresee(config: SimulationConfig, found: Calibration) -> Foresight:
    """Predict a calibrated run; times this machine, if it has not been yet."""
    seconds, num_bytes = predicted_run(found)
    words = (
        f"predicted: {duration(seconds)} and {size(num_bytes)} per party, on this machine if "
        "nothing else runs on it"
    )
    return Foresight(seconds, num_bytes, (words, *_cheaper(config, found.template, seconds)))


def _cheaper(config: SimulationConfig, plan: RunPlan, seconds: float) -> Iterator[str]:
    """The other protocol, where it is much cheaper and takes what was asked."""
    is_rows = plan.model == "logistic" and plan.protocol == ENCRYPTED_ROWS
    if not is_rows or config.within is not None or seconds < SHORT:
        return
    update = config.update if config.update in UPDATES[SECURE_AGGREGATION] else "gd"
    # Sums need no barrier: what they disclose is noisy already.
    update = "gd" if update == "barrier" else update
    figures = PublicFigures(
        rows_by_party=tuple(member.rows for member in plan.members),
        num_features=plan.num_features,
    )
    wanted = Wanted.of(config)
    wanted = replace(
        wanted, protocol=SECURE_AGGREGATION, update=update, rounds=plan.rounds, profile="secure"
    )
    try:
        others, num_bytes = predicted_run(calibrate(figures, wanted))
    except CohortError:
        return
    if others < CHEAPER * seconds:
        yield (
            f"cheaper: --protocol secure-aggregation --update {update} takes about "
            f"{duration(others)} and {size(num_bytes)} per party; owners stay online, and every "
            "iterate is public"
        )
