"""The owner's yes to one plan: by command, or in advance by policy."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from parties.agent.manifest import describe_plan
from parties.agent.store import SessionStore
from parties.policy import End, Reason, ToldError, told
from protocols.errors import ParameterError
from protocols.names import spoken
from protocols.plan.run_plan import RunPlan

log = logging.getLogger(__name__)

_SHOWN = 3
_CODE_BYTES = 4


@dataclass(frozen=True, eq=False, slots=True)
class _Asked:
    """A request that waits; plan: its digest; words: which the code decides about."""

    code: str
    plan: str
    words: str
    session: str

    @property
    def decision(self) -> tuple[str, str]:
        """By what a decision is kept: the plan, and SHA-256 of the words that were shown."""
        return self.plan, sha256(self.words.encode()).hexdigest()


class Consent:
    """Plans that wait for a decision, and when a plan is agreed to, beside the owner's policy.

    ask: a person has to accept each plan; otherwise the policy decides alone. own_key: this
    party's verification key; peers: gives the verification keys of the other parties by name, as
    they are now. foresee: what the owner's records say of a plan, in words: rows of its training,
    budget; refuses other rows, and what would overdraw it. wait_seconds: how long a plan waits for
    its decision. norm_bound: of this owner's rows, for the figures that the owner is shown.

    Security: a plan is accepted by a code that is drawn here when the plan comes, and anew when it
    comes again and its words are others. By digits of its digest it could not be: a coordinator
    finds two plans that share them. A decision is kept for a plan in these words: where they
    change, such as what is left of the budget, the owner is asked again. A plan of a session that
    is over waits no longer, and its code accepts nothing.

    Privacy: the noise of a run is divided over its members, so a member that nobody vouches for
    may add none. A plan with one is refused, whatever the policy says.
    """

    def __init__(
        self,
        name: str,
        store: SessionStore,
        *,
        ask: bool,
        own_key: str,
        norm_bound: float,
        peers: Callable[[], Mapping[str, str]] = dict,
        foresee: Callable[[RunPlan], Iterable[str]] = lambda plan: (),
        wait_seconds: float = 3600.0,
    ) -> None:
        self._name, self._store, self._ask = name, store, ask
        self._own_key, self._norm_bound = own_key, norm_bound
        self._peers, self._foresee, self._wait_seconds = peers, foresee, wait_seconds
        self._changed = threading.Condition()
        self._decided = store.decisions()
        self._pending: dict[str, _Asked] = {}  # by digest of the plan
        self._over = set[str]()

    def check_members(self, plan: RunPlan) -> None:
        """Refuse strangers.

        Raises:
            ToldError: a member is not the party that the owner knows by this name, one owner is
                two members, or the owner's list cannot be read.
        """
        with told(Reason.PEERS):
            known = {**self._peers(), self._name: self._own_key}
        for member in plan.members:
            if known.get(member.name, member.verify_key) != member.verify_key:
                log.warning("party %r is known by %s", member.name, spoken(known[member.name]))
                raise ToldError(Reason.KEY, party=repr(member.name), key=spoken(member.verify_key))
        strangers = [m for m in plan.members if m.name not in known]
        if strangers:
            shown = ", ".join(
                f"{m.name!r} (key {spoken(m.verify_key)})" for m in strangers[:_SHOWN]
            )
            more = f" and {len(strangers) - _SHOWN} more" if len(strangers) > _SHOWN else ""
            raise ToldError(Reason.STRANGERS, party=shown + more)
        owners = Counter(m.verify_key for m in plan.members)
        twins = [m.name for m in plan.members if owners[m.verify_key] > 1]
        if twins:
            raise ToldError(Reason.TWINS, party=" and ".join(map(repr, twins)))

    def pending(self) -> dict[str, str]:
        """Manifests in words, by the code to decide by."""
        with self._changed:
            return {asked.code: asked.words for asked in self._pending.values()}

    def decide(self, code: str, accept: bool) -> dict[str, Any]:
        """Accept or refuse the plan that waits under a code.

        Raises:
            ParameterError: no plan waits under it.
        """
        with self._changed:
            waiting = {asked.code: asked for asked in self._pending.values()}
            if code not in waiting:
                raise ParameterError(
                    f"no plan waits for consent under {code!r}: a code ends with its plan's wait, "
                    "or its run; cohort party consent FOLDER shows what waits now"
                )
            asked = waiting[code]
            self._store.decided(*asked.decision, accept)
            self._decided[asked.decision] = accept
            self._changed.notify_all()
            return {"plan": asked.plan, "accepted": accept}

    def end(self, session: str) -> None:
        """Nobody is asked about a session that is over; whatever waits for it is refused."""
        with self._changed:
            self._over.add(session)
            self._pending = {d: a for d, a in self._pending.items() if a.session != session}
            self._changed.notify_all()

    def require(self, plan: RunPlan) -> None:
        """Return once the owner agrees.

        Raises:
            ToldError: the owner refuses, does not answer in time, or does not know a member; or,
                for which nobody is asked, the rows are not those of its training or the budget
                would be overdrawn; or the session is over, or the same request has come again,
                which waits in its place.
        """
        self.check_members(plan)
        records = tuple(self._foresee(plan))
        if not self._ask:
            return
        digest, deadline = plan.digest(), time.monotonic() + self._wait_seconds
        words = describe_plan(plan, self._name, self._norm_bound, records)
        with self._changed:
            before = self._pending.get(digest)
            # Words that are others, such as what is left of the budget, have another code.
            known = before.code if before and before.words == words else None
            code = known or secrets.token_hex(_CODE_BYTES)
            asked = self._pending[digest] = _Asked(code, digest, words, plan.session)
            self._changed.notify_all()
            if asked.decision not in self._decided:
                log.warning(
                    "%s: plan %s waits for consent: cohort party consent shows it",
                    self._name,
                    digest,
                )
            try:
                self._wait(asked, deadline)
            finally:
                if self._pending.get(digest) is asked:
                    del self._pending[digest]
            if not self._decided[asked.decision]:
                raise ToldError(Reason.CONSENT, plan=digest[:16])

    def _wait(self, asked: _Asked, deadline: float) -> None:
        while asked.decision not in self._decided:
            if asked.session in self._over:
                raise ToldError(Reason.OVER, session=repr(asked.session), end=End.LOST.value)
            if self._pending.get(asked.plan) is not asked:
                raise ToldError(Reason.AGAIN, plan=asked.plan[:16])
            if not self._changed.wait(deadline - time.monotonic()):
                log.warning("no answer within %g s", self._wait_seconds)
                raise ToldError(Reason.SILENCE, plan=asked.plan[:16])
