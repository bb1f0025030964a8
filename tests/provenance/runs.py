"""Whole toy runs (ring 512, INSECURE), recorded with the secrets behind them.

A run is what everybody sees, request and reply of every step, and what only a test may: each
party's secrets and sample ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from coordinator.log import recorded
from parties.kernel.keys.key_share import KeyShare
from parties.kernel.model.session import ModelSession
from parties.kernel.rows import session as of_rows
from parties.kernel.sums.aggregate_share import AggregateShare
from parties.verifier.encrypted_model import EncryptedModelParty
from protocols.ckks import REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.exchange.messages import Body, public_bytes
from protocols.steps.locks import Lock, asked_for
from protocols.steps.rounds import Held
from protocols.steps.samples import Sample
from tests.support import exact
from tests.support.helpers import Session, half_of
from tests.support.sessions import Vanishing, asked, reply_of, small

# From this step on parties are gone; before it they go on in another process.
Fates = Mapping[str, Sequence[str]]


def rows_session(update: Any = "gd", **changes: Any) -> Session:
    """Encrypted rows: two rounds, three parties."""
    return small(**({"update": update, "rounds": 2, "parties": 3} | changes))


@dataclass
class Run:
    """secrets, ephemerals: coefficients of s_p, u_p; held: what each party holds of other
    dealers; slots: what was encrypted, by party and label; sums: (c0, c1) of what was computed on
    rows in the clear, what was added to c0 included; messages: (step, party, request, reply);
    unopened: replies that were fixed and never sent, by step and party; locks: of replies that open
    where all were asked for the same, likewise.
    """

    session: Session
    plan: Any = None
    seed: bytes = b""
    context: CkksContext | None = None
    secrets: dict[str, exact.Integers] = field(default_factory=dict)
    ephemerals: dict[str, exact.Integers] = field(default_factory=dict)
    held: dict[str, dict[str, rns.Residues]] = field(default_factory=dict)
    slots: dict[tuple[str, str], Any] = field(default_factory=dict)
    sums: dict[tuple[str, str], list[rns.Residues]] = field(default_factory=dict)
    messages: list[tuple[str, str, Body, Body]] = field(default_factory=list)
    unopened: dict[tuple[str, str], Body] = field(default_factory=dict)
    locks: dict[tuple[str, str], Lock] = field(default_factory=dict)
    weights: Any = None

    @property
    def samples(self) -> dict[str, tuple[Sample, ...]]:
        """Every party's ledger."""
        return {n: share_of(half_of(p)).samples for n, p in self.session.parties.items()}

    @property
    def sent(self) -> dict[str, tuple[Sample, ...]]:
        """The same, without those of replies that were fixed and never sent."""
        kept = {
            name: [f"{step}/" for step, n in self.unopened if n == name] for name in self.samples
        }
        return {
            name: tuple(s for s in samples if not f"{s.label}/".startswith(tuple(kept[name])))
            for name, samples in self.samples.items()
        }

    def watch(self) -> None:
        """Take what parties hold now."""
        self.plan = self.session.plan
        for name, party in self.session.parties.items():
            half = half_of(party)
            share = share_of(half) if half else None
            if isinstance(share, AggregateShare):
                if share._unmasked is not None:
                    self.secrets[name] = share._unmasked.astype(object)
                continue
            if not getattr(share, "begun", False):
                continue
            self.seed, self.context = share.seed, share.context
            if share._secret is not None and name not in self.secrets:
                self.secrets[name] = exact.secret(share)
            if share._ephemeral is not None and name not in self.ephemerals:
                self.ephemerals[name] = share._ephemeral.astype(object)
            cover = getattr(half.secret, "_cover", None)  # in runs with cover alone
            if cover is not None and cover._held:
                self.held[name] = dict(cover._held)


def share_of(half: Any) -> Any:
    """A party's secret, inside its session with the kernel or beside the plan."""
    return half.secret if hasattr(half, "secret") else half.session._share


def record(session: Session, losses: Fates | None = None, restarts: Fates | None = None) -> Run:
    """Run a session to its end, watching."""
    run = Run(session)
    run.weights = session.run(watching(run, losses, restarts)).weights
    return run


def resumed(folder: Path, at: str = "refresh/1") -> Run:
    """A coordinator that dies while it waits for a step, and its successor from kept messages."""
    run = Run(rows_session("nag", rounds=3))
    (folder / "messages").mkdir()
    session, keys = run.session, run.session.verify_keys
    key, watched = public_bytes(session.coordinator_key), watching(run)

    def dying(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for k, reply in enumerate(watched(step, outgoing)):
            if step == at and k:
                raise KeyboardInterrupt
            yield reply

    with suppress(KeyboardInterrupt):
        session.run(recorded(dying, folder / "messages", key, keys))
    session.coordinator = session.successor()
    run.weights = session.run(recorded(watched, folder / "messages", key, keys)).weights
    return run


def watching(
    run: Run, losses: Fates | None = None, restarts: Fates | None = None
) -> Callable[[str, Mapping[str, bytes]], Iterator[tuple[str, bytes]]]:
    """Deliver and record; parties vanish and restart as said."""
    session, encrypt, add = run.session, of_rows.encrypt, AggregateShare.encrypt
    onto, gradient = KeyShare.encrypt_onto, EncryptedModelParty.gradient
    refresh = ModelSession.refresh
    whose: list[str] = []

    def watched(share: Any, key: Any, slots: Any, label: str) -> Any:
        run.slots[whose[-1], label] = slots
        return encrypt(share, key, slots, label)

    def watched_onto(share: KeyShare, key: Any, sums: Any, names: Any, hides: Any) -> Any:
        made = onto(share, key, sums, names, hides)
        for label, total, found in zip(names, sums, made, strict=True) if hides[1] else ():
            run.sums[whose[-1], label] = [total[1], *map(np.copy, (total[0], found[0]))]
        return made

    def watched_gradient(party: Any, t: int, label: str, point: Any) -> Any:
        parts, low = gradient(party, t, label, point), party.context.primes[:REFRESH_TOWERS]
        for k, (c0, _) in enumerate(parts):
            c1, below, before = run.sums[party.name, f"{label}/{k}"]
            added = rns.subtract(c0, before, low)
            run.sums[party.name, f"{label}/{k}"] = [rns.add(below, added, low), c1]
        return parts

    def watched_sum(share: AggregateShare, t: int, values: Any) -> Any:
        run.slots[whose[-1], f"round/{t}"] = values
        return add(share, t, values)

    def watched_refresh(own: ModelSession, maps: Any, step: str, request: Body) -> Body:
        keys = own._keys
        told = asked_for(step, request, keys.covering)
        run.locks[step, whose[-1]], _ = own._pads.lock(told, keys.missing)
        return refresh(own, maps, step, request)

    def one(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        ((name, data),) = outgoing.items()
        whose.append(name)
        with (
            patch.object(of_rows, "encrypt", watched),
            patch.object(KeyShare, "encrypt_onto", watched_onto),
            patch.object(EncryptedModelParty, "gradient", watched_gradient),
            patch.object(ModelSession, "refresh", watched_refresh),
            patch.object(AggregateShare, "encrypt", watched_sum),
        ):
            replies = session.ask(step, outgoing)
        reply = reply_of(session, name, replies[name]).body
        run.messages.append((step, name, asked(session, data), reply))
        run.unopened.pop((step, name), None)
        half = half_of(session.parties[name])
        fixed = getattr(half, "rounds", None)
        if fixed is not None and fixed._last is not None and not fixed._last.is_open:
            held = isinstance(fixed._last, Held)
            # None where the kernel has refused to make it.
            *_, kept = (half.secret._reply or (None,)) if held else (fixed._last._message,)
            if kept is not None:
                run.unopened[fixed._step, name] = kept
        run.watch()
        return replies

    transport = Vanishing(one, losses or {})

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        run.watch()
        for name in (restarts or {}).get(step, ()):
            session.restart(name)
        yield from transport(step, outgoing)

    return ask
