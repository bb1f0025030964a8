"""The owner's yes to one plan: by command, or in advance by policy."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parties.manifest import words
from parties.session_store import SessionStore
from protocols.errors import ParameterError, PolicyError
from protocols.plan import RunPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """When a plan is agreed to, beside `parties.policy.Policy`.

    ask: a person has to accept each plan; otherwise the policy decides alone. own_key: this
    party's verification key; peers: verification keys of the other parties by name, empty accepts
    any. wait_seconds: how long a plan waits for its decision. norm_bound: of this owner's rows,
    for the figures that the owner is shown.
    """

    ask: bool
    own_key: str
    norm_bound: float
    peers: Mapping[str, str] = field(default_factory=dict)
    wait_seconds: float = 3600.0

    def check_members(self, name: str, plan: RunPlan) -> None:
        """Refuse strangers.

        Raises:
            PolicyError: a member is not the party that the owner knows by this name.
        """
        for member in plan.members:
            known = self.own_key if member.name == name else self.peers.get(member.name)
            if (known is None and self.peers) or (known and known != member.verify_key):
                raise PolicyError(
                    f"party {member.name!r} of the plan has the key {member.verify_key[:16]}…, "
                    f"which is not among this party's [peers]"
                )


class Consent:
    """Plans that wait for a decision."""

    def __init__(self, name: str, terms: Terms, store: SessionStore) -> None:
        self._name, self._terms, self._store = name, terms, store
        self._changed = threading.Condition()
        self._decided = store.decisions()
        self._pending: dict[str, str] = {}

    def pending(self) -> dict[str, str]:
        """Manifests in words, by plan digest."""
        with self._changed:
            return dict(self._pending)

    def decide(self, plan: str, accept: bool) -> dict[str, Any]:
        """Accept or refuse a waiting plan; `plan` may be the first 8 or more digits.

        Raises:
            ParameterError: no such plan waits.
        """
        with self._changed:
            found = [name for name in self._pending if len(plan) >= 8 and name.startswith(plan)]
            if len(found) != 1:
                raise ParameterError(
                    f"plan {plan!r} does not wait for consent; see cohort party consent"
                )
            self._store.decided(found[0], accept)
            self._decided[found[0]] = accept
            self._changed.notify_all()
            return {"plan": found[0], "accepted": accept}

    def require(self, plan: RunPlan) -> None:
        """Return once the owner agrees.

        Raises:
            PolicyError: the owner refuses, does not answer in time, or does not know a member.
        """
        self._terms.check_members(self._name, plan)
        if not self._terms.ask:
            return
        digest, deadline = plan.digest(), time.monotonic() + self._terms.wait_seconds
        if digest not in self._decided:
            log.warning("%s: plan %s waits for consent", self._name, digest)
        with self._changed:
            self._pending[digest] = words(plan, self._name, self._terms.norm_bound)
            try:
                while digest not in self._decided:
                    if not self._changed.wait(deadline - time.monotonic()):
                        raise PolicyError(
                            f"the owner did not answer to plan {digest[:16]} within "
                            f"{self._terms.wait_seconds:g} s"
                        )
            finally:
                self._pending.pop(digest, None)
            if not self._decided[digest]:
                raise PolicyError(f"the owner refuses plan {digest[:16]}")
