"""Who of a run is still there, and the steps that the survivors answer for all (see `cover`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from protocols.ckks.residues import Residues
from protocols.errors import ProtocolError
from protocols.exchange import COVERED, commit_of
from protocols.exchange.messages import Ask, Body, Exchange, Fold
from protocols.exchange.wire import Check, RunningSums
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.protocol import protocol_of
from protocols.steps import endorsed
from protocols.steps.commitments import Gathering
from protocols.steps.confirmed import View
from protocols.steps.sealed_shares import StandIn

# Told all covered parties, whenever one more is missing.
OnMissing = Callable[[tuple[str, ...]], None]


class Survivors:
    """Who of a run is still there; asks the steps that the survivors can do for all.

    present: parties that are asked; missing: covered ones, never asked again; replies: the last
    ones, with what they say beside the blobs that were summed.

    Replies of a committed step, and of every repetition, are fixed before they are sent
    (`commitments`); the endorsements of what was opened go out with the next step.

    plan: of the run; seed: the joint one; view: of what everyone was asked.
    """

    def __init__(
        self,
        plan: CircuitPlan,
        seed: bytes,
        view: View,
        on_missing: OnMissing = lambda names: None,
    ) -> None:
        self._plan, self._seed, self._view = plan, seed, view
        self._on_missing = on_missing
        self._stand_ins: tuple[str, ...] = ()
        self._endorsed = Body()
        self.missing: tuple[str, ...] = ()
        self.replies: Mapping[str, Body] = {}

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
        check: Check | None = None,
    ) -> Exchange[tuple[str, list[Residues]]]:
        """Name of the step that everyone present answered, and the sums of the replies' blobs.

        meanwhile: see `messages.Ask`; check: of each blob that is added.

        Raises:
            ProtocolError: parties are missing and cannot be covered; names them.
        """
        whole = Body({**request.meta, **self._endorsed.meta}, request.blobs)
        self._endorsed = Body()
        sums, lost = yield from self._answered(step, whole, primes, ring_dim, meanwhile, check)
        if not lost:
            return step, sums
        again, whole = COVERED + step, self._lose(step, lost).to_body(request.blobs)
        sums, _ = yield from self._answered(again, whole, primes, ring_dim, None, check)
        return again, sums

    def _answered(
        self,
        step: str,
        request: Body,
        primes: Sequence[Sequence[int]],
        ring_dim: int,
        meanwhile: Callable[[], object] | None,
        check: Check | None,
    ) -> Exchange[tuple[list[Residues], tuple[str, ...]]]:
        """Sums of everyone's replies, or who did not reply."""
        protocol, names = protocol_of(self._plan), self.present
        lossy = bool(protocol.repetition(self._plan, step))
        sums = RunningSums(names, primes, ring_dim, check)

        def asking(step: str, body: Body, fold: Fold | None, work: Any = None) -> Ask:
            return Ask(step, dict.fromkeys(names, body), fold, lossy, work)

        def lost(replies: Mapping[str, Body]) -> tuple[str, ...]:
            return tuple(name for name in names if lossy and name not in replies)

        if not protocol.place(step).fixed:
            replies = yield asking(step, request, sums.fold, meanwhile)
            if gone := lost(replies):
                return [], gone
            return self._summed(sums, replies), ()
        replies = yield asking(commit_of(step), request, None, meanwhile)
        if gone := lost(replies):
            return [], gone
        terms = endorsed.of_round(
            self._plan.roster, step, self._seed, self.missing, self._view.digest
        )
        gathering = Gathering(terms, sums.fold)
        replies = yield asking(step, gathering.committed(replies), gathering.take)
        if gone := lost(replies):
            return [], gone
        self._endorsed = gathering.endorsed(replies)
        return self._summed(sums, replies), ()

    def _summed(self, sums: RunningSums, replies: Mapping[str, Body]) -> list[Residues]:
        found = sums.of(replies)
        self.replies = {name: Body(replies[name].meta) for name in self.present}
        return found

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
