"""What a run has cost: its training, the sums that followed, and both together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from protocols.words import Fact, number

WHOLE = "privacy_in_all"
"""Where model.json, certificate.json and summary.json have what run.json calls `promise`."""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Epsilon and delta of all that a run opened: what every output shows of the whole run.

    training: (epsilon, delta) of the model alone; after: epsilon of the sums that followed, alone,
    at the delta of the whole, None: none was opened; without_result: what sums were opened and paid
    for, and gave no result.
    """

    epsilon: float
    delta: float
    training: tuple[float, float]
    after: float | None = None
    without_result: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Promise:
        """Of `to_dict`.

        Raises:
            KeyError, TypeError: it is another object.
        """
        training, lost = tuple(fields["training"]), tuple(fields["without_result"])
        return cls(**{**fields, "training": training, "without_result": lost})

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        lists = {"training": list(self.training), "without_result": list(self.without_result)}
        return asdict(self) | lists

    @property
    def lost_words(self) -> str:
        """A sentence on sums that gave no result; empty where each gave one."""
        what = " and ".join(f"the {name}" for name in self.without_result)
        return f"paid for without a result: sums for {what} were opened" if what else ""

    def facts(self) -> Iterator[Fact]:
        """For a report: of what followed, and of the whole run; nothing where nothing followed."""
        if self.after is None:
            return
        yield (
            "ε of the whole run",
            number(self.epsilon),
            f"training and all that followed, at δ = {self.delta:g}: this is what the run has cost",
        )
        yield (
            "ε of what followed the training",
            number(self.after),
            "what its secure sums alone would cost; all that follows is of the training alone",
        )
        if self.lost_words:
            yield "Without a result", ", ".join(self.without_result), self.lost_words

    def lines(self) -> Iterator[str]:
        """The same for a terminal."""
        if self.after is None:
            return
        yield (
            f"with what followed: epsilon={self.epsilon:g}, delta={self.delta:g} for the whole run"
        )
        if self.lost_words:
            yield self.lost_words
