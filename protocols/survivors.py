"""Who of a run is still there, and the steps that the survivors answer for all (see `cover`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocols.circuit_plan import CircuitPlan
from protocols.ckks.residues import Residues
from protocols.cover import StandIn
from protocols.errors import ProtocolError
from protocols.messages import Ask, Body, Exchange, to_everyone
from protocols.protocol import COVERED
from protocols.wire import RunningSums

# Told all covered parties, whenever one more is missing.
OnMissing = Callable[[tuple[str, ...]], None]


class Survivors:
    """Who of a run is still there; asks the steps that the survivors can do for all.

    present: parties that are asked; missing: covered ones, never asked again.
    """

    def __init__(self, plan: CircuitPlan, on_missing: OnMissing = lambda names: None) -> None:
        self._plan, self._on_missing = plan, on_missing
        self._stand_ins: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()

    @property
    def present(self) -> tuple[str, ...]:
        """In the plan's order."""
        return tuple(name for name in self._plan.names if name not in self.missing)

    def ask(
        self,
        step: str,
        request: Body,
        primes: Sequence[Sequence[int]],
        ring_dim: int,
        meanwhile: Callable[[], object] | None = None,
    ) -> Exchange[tuple[str, list[Residues]]]:
        """Name of the step that everyone present answered, and the sums of the replies' blobs.

        Raises:
            ProtocolError: parties are missing and cannot be covered; names them.
        """
        sums = RunningSums(self.present, primes, ring_dim)
        again = None if self._plan.cover is None else COVERED + step
        bodies = dict.fromkeys(self.present, request)
        replies = yield Ask(step, bodies, sums.fold, again is not None, meanwhile)
        lost = tuple(name for name in self.present if name not in replies)
        if again is None or not lost:
            return step, sums.of(replies)
        whole = self._lose(step, lost).to_body(request.blobs)
        sums = RunningSums(self.present, primes, ring_dim)
        return again, sums.of((yield to_everyone(again, self.present, whole, sums.fold)))

    def _lose(self, step: str, lost: tuple[str, ...]) -> StandIn:
        names, needed = ", ".join(lost), self._plan.cover or 0
        survivors = tuple(name for name in self.present if name not in lost)
        stand_ins = self._stand_ins or survivors[:needed]
        reason = ""
        if len(survivors) < needed:
            reason = f"{len(survivors)} parties are left, and {needed} are needed to cover for them"
        elif set(stand_ins) & set(lost):
            reason = "who stands in for others cannot be covered for"
        if reason:
            culprit = lost[0] if len(lost) == 1 else None
            raise ProtocolError(f"no reply to {step!r} from {names}: {reason}", culprit=culprit)
        self._stand_ins = stand_ins
        self.missing = tuple(n for n in self._plan.names if n in (*self.missing, *lost))
        self._on_missing(self.missing)
        return StandIn(self.missing, stand_ins)
