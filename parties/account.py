"""One run's entry in a party's ledger, from the agreement to the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from parties.policy import Reason, ToldError, told
from protocols.errors import ParameterError, PolicyError
from protocols.privacy.loss.accounting import compose
from protocols.privacy.loss.ledger import Ledger

if TYPE_CHECKING:
    from protocols.privacy.certificates.mechanism import Mechanism
    from protocols.privacy.loss.accounting import Event


SLACK = 1e-6
"""Of an epsilon's float64 arithmetic, on two machines."""


class Account:
    """One run's entry in a party's ledger.

    ledger: None keeps no record; dataset: the owner's name of the data, the same however they are
    encoded: all runs on it share one budget; largest: epsilon and delta of one run, without a
    ledger as well, None: any.

    Privacy: the run counts from `reserve` on. `abandon` takes it back only if nothing that depends
    on the party's rows has been made (`spend`); `commit` notes the regular end. A process that dies
    in between leaves the run spent.

    booked: law of the run's noise and its cost, mu^2.

    Raises:
        ParameterError: a ledger without a data set's name.
    """

    def __init__(
        self, ledger: Ledger | None, dataset: str, largest: tuple[float, float] | None = None
    ) -> None:
        if ledger is not None and not dataset:
            raise ParameterError("dataset='' is empty: name the data whose budget the ledger keeps")
        self._ledger, self._dataset, self._largest = ledger, dataset, largest
        self._open: str | None = None
        self._entry = ""  # of the name, which may be another run's by now
        self._spent = False
        self.booked: tuple[str, float] | None = ("", 0.0)

    @property
    def is_kept(self) -> bool:
        """Whether there is a ledger."""
        return self._ledger is not None

    @property
    def is_booked(self) -> bool:
        """Whether a run is reserved, or was spent; without a ledger each is."""
        return self._ledger is None or self._open is not None or self._spent

    def require(self, run: str) -> None:
        """Refuse to go on from a run that this ledger was not charged for; run: its plan's digest.

        Raises:
            PolicyError: there is no such entry.
        """
        with told(Reason.BUDGET):
            has = self._ledger is None or self._ledger.has(self._dataset, run)
        if not has:
            raise ToldError(Reason.MOMENT, plan=run[:16])

    def reserve(self, cost: Mechanism, run: str) -> None:
        """Count the run as spent; run: its name, unique (the plan's digest).

        Raises:
            PolicyError: the run costs more than one may, the budget would be overdrawn, a run is
                open already, or one is spent, whose `spend` would stand for this one's.
        """
        more: Any = cost.additive_delta
        if not isinstance(more, (int, float)) or not more >= 0:  # below 0 it would buy epsilon
            raise PolicyError(f"additive_delta={more} is no number from 0 on")
        booked = _cost(cost.events)
        if self._largest is not None:
            hold(cost, *self._largest)
        if self._ledger is None:
            self.booked = booked
            return
        if self._open is not None or self._spent:
            raise PolicyError("this party has already reserved its budget for a run")
        with told(Reason.BUDGET):
            self._open, self._entry = self._ledger.reserved(
                self._dataset,
                cost.events,
                additive_delta=cost.additive_delta,
                identifier=run,
            )
        self.booked = booked

    def spend(self) -> None:
        """From here on the run cannot be taken back: the ledger says so before anything leaves.

        Raises:
            PolicyError: a run of this name was spent before.
        """
        if self._spent:
            return
        if self._ledger and self._open:
            with told(Reason.BUDGET):  # and again, however often it is asked
                self._ledger.spend(self._open, self._entry)
        self._spent = True

    @property
    def is_spent(self) -> bool:
        """Whether something that depends on rows was made."""
        return self._spent

    def commit(self) -> None:
        """The run ended regularly.

        Raises:
            PolicyError: see `spend`; what is committed needs no payment any more.
        """
        if self._ledger and self._open:
            self.spend()
            with told(Reason.BUDGET):
                self._ledger.commit(self._open, self._entry)
            self._open = None

    def abandon(self) -> None:
        """The run ended early: take it back, unless it is spent."""
        if not self._spent:
            self.booked = ("", 0.0)
        if self._ledger and self._open and not self._spent:
            with suppress(ToldError), told(Reason.BUDGET):  # spent, or over, as the ledger knows
                self._ledger.rollback(self._open, self._entry)
            self._open = None

    def state(self) -> dict[str, Any]:
        """For `restore`, in JSON's types."""
        state = {"open": self._open, "entry": self._entry if self._open else ""}
        return state | {"spent": self._spent, "booked": self.booked}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with a run; one that the ledger has closed since the state was taken is over."""
        held, self._spent = state["open"], bool(state["spent"])
        booked = state.get("booked", ("", 0.0))
        self.booked = booked and (str(booked[0]), float(booked[1]))
        # By its line: a name that was taken back may be another run's by now.
        entry = self._ledger.entry(held) if self._ledger is not None and held is not None else ""
        is_open = bool(entry) and entry == state.get("entry")
        if held is not None and self._ledger is not None and not (is_open or self._spent):
            raise PolicyError("the ledger has closed this run meanwhile: it is over")
        self._open, self._entry = (held, entry) if is_open else (None, "")


def _cost(events: Sequence[Event]) -> tuple[str, float]:
    """As `SumsSheet.cost`, and of which law; of other releases: of none, which is 0."""
    if {event.kind for event in events} != {"gaussian"}:
        return "", 0.0
    return "gaussian", math.fsum(e.count / e.noise_multiplier**2 for e in events)


def hold(cost: Mechanism, most: float, delta: float) -> None:
    """Refuse a run of more than this epsilon at this delta, whatever its plan says.

    Raises:
        PolicyError: gives the epsilon that it costs.
    """
    left = delta - cost.additive_delta
    epsilon = compose([*cost.events], delta=left) if left > 0 else math.inf
    if not epsilon <= most * (1 + SLACK):
        raise PolicyError(
            f"epsilon={epsilon:.6g} of this run at delta={delta:.3g} exceeds max_epsilon={most:g} "
            "of this party's [policy]"
        )
