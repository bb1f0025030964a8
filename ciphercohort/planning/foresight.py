"""What `cohort simulate` says of its costs: before the first key, and when it knows better.

It rehearses nothing: it says what `cohort plan` has rehearsed on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ciphercohort.job.config import SimulationConfig
from ciphercohort.planning.comparison import CHEAPER, COST, like
from ciphercohort.planning.predicted import known, predict
from ciphercohort.results.result import RunResult
from protocols.errors import CohortError
from protocols.names import UNDER_CKKS
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.updates.registry import UPDATES
from protocols.words import duration, size

SHORT = 30.0
"""Nobody waits for a cheaper protocol where a run is this short [s]."""


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


def foresee(config: SimulationConfig, found: Calibration) -> Foresight | None:
    """Predict a calibrated run; None where this machine has not rehearsed it."""
    predicted = predict(found, known)
    if predicted is None:
        return None
    seconds, num_bytes = predicted.costs
    words = (
        f"predicted: {duration(seconds)} and {size(num_bytes)} per party, on this machine if "
        "nothing else runs on it"
    )
    return Foresight(seconds, num_bytes, (words, *_cheaper(config, found, seconds)))


def _cheaper(config: SimulationConfig, found: Calibration, seconds: float) -> Iterator[str]:
    """Other protocols that are much cheaper and take what was asked, the cheapest first."""
    plan = found.template
    under = plan.model == "logistic" and plan.protocol in UNDER_CKKS
    if not under or config.within is not None or seconds < SHORT:
        return
    figures = PublicFigures(
        rows_by_party=tuple(member.rows for member in plan.members),
        num_features=plan.num_features,
    )
    cheaper = list[tuple[float, str]]()
    for protocol in UPDATES:
        if protocol == plan.protocol:
            continue
        try:
            wanted = like(config, found, protocol)
            other = predict(calibrate(figures, wanted), known)
        except CohortError:
            continue
        if other is None:
            continue
        lasts, num_bytes = other.costs
        if lasts < CHEAPER * seconds:
            words = (
                f"cheaper: --protocol {protocol} --update {wanted.update} takes about "
                f"{duration(lasts)} and {size(num_bytes)} per party; {COST[protocol]}"
            )
            cheaper.append((lasts, words))
    yield from (words for _, words in sorted(cheaper))
