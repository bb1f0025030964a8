"""A transcript from public output alone: plan, seeds and released weights, no data and no secret.

Every polynomial that hides under ring-LWE, a mask or a pad is drawn uniform; the last party's
decryption share is what the released weights leave over, flooded as the real ones are. The
coordinator's half is its own code: it needs no secret. So the simulated messages have the steps,
places and sizes of real ones, and whoever tells them apart breaks an assumption of
docs/method/security-argument.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from parties.kernel.sheet import digest_of
from parties.verifier.sheets import keys_sheet, rows_sheet
from protocols.ckks import DECRYPTION_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.exchange.messages import (
    UNHEARD,
    Body,
    Envelope,
    decode,
    digest,
    encode,
    heard,
    public_bytes,
)
from protocols.exchange.signed_values import Agreement, commitment
from protocols.names import COORDINATOR
from protocols.plan.protocol import sequence
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.rows.plan import RowsPlan
from protocols.rows.protocol import PROTOCOL
from protocols.steps import agree, decrypt, keygen, refresh
from protocols.steps.endorsed import CONFIRM, KEYS, ROWS, Opening, Phase
from protocols.steps.rounds import Rounds
from tests.provenance.published import shapes
from tests.provenance.runs import Run
from tests.support.helpers import Session, make_session


class _LearntError(Exception):
    """c0 of the last ciphertext is known."""


class Simulator:
    """All parties of a run of encrypted rows.

    plan: the public plan; weights: released, shape (d,). Its own keys sign, with the names of the
    plan's parties. seed: of the simulator's randomness.
    """

    def __init__(self, plan: RowsPlan, weights: Sequence[float], seed: int = 1) -> None:
        self._plan, self._weights, self._seed = plan, np.asarray(weights), seed
        self._context = CkksContext(plan.ckks, f"simulated-{seed}")
        self._c0: Residues | None = None
        rows = [member.rows for member in plan.members]
        # Names, row counts and columns are public; the rows of this session are never looked at.
        self.session: Session = make_session(
            rows=rows, features=plan.num_features, ring_dim=plan.ckks.ring_dim
        )
        self.session.coordinator._make_plan = self._plan_for
        self._openings: dict[tuple[str, Phase], Opening] = {}
        self._rounds: dict[str, Rounds] = {}
        self._seeds = {name: self._bytes(f"seed {name}") for name in plan.names}

    def _plan_for(self, members: Any) -> RowsPlan:
        made = replace(self._plan, session=self.session.coordinator.session, members=members)
        self._now = made
        return made

    def run(self) -> Run:
        """The simulated transcript: a first pass learns c0, which the replies fix."""
        found = Run(self.session)
        coordinator = self.session.coordinator
        fuse = decrypt.fuse

        def learn(context: CkksContext, message: Residues) -> Any:
            low = context.primes[:DECRYPTION_TOWERS]
            for name in self._plan.names:
                message = rns.subtract(message, self._drawn(name, "decrypt", low), low)
            self._c0 = message
            raise _LearntError

        with patch.object(decrypt, "fuse", learn), suppress(_LearntError):
            coordinator.run(self._asking(Run(self.session)))
        with patch.object(decrypt, "fuse", fuse):
            found.weights = coordinator.run(self._asking(found)).weights
        found.plan, found.context = self._now, self._context
        return found

    def _asking(self, run: Run) -> Any:
        read = public_bytes(self.session.coordinator_key)
        seen = dict.fromkeys(self._plan.names, UNHEARD)

        def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
            for name, data in outgoing.items():
                request = decode(data, read)
                if step in sequence(self._plan)[3:-1] and PROTOCOL.is_alike(step):
                    self._rounds[name].view.note(step, request.body)
                body = self._reply(name, step, request.body)
                run.messages.append((step, name, request.body, body))
                asked, address = digest(data), (request.session, step, name, COORDINATOR)
                seen[name] = heard(seen[name], asked)
                reply = Envelope(*address, body, answers=asked, seen=seen[name])
                yield name, encode(reply, self.session.party_keys[name])

        return ask

    def _reply(self, name: str, step: str, request: Body) -> Body:
        kind = step.partition("/")[0]
        if kind == "enrol":
            member = self._plan.members[self._plan.party_index(name)]
            schema = dict(self._plan.schema)["digest"]
            committed = commitment(self._seeds[name])
            return agree.answer_enrol(
                member.rows, self._plan.num_features, schema, committed, member.follows
            )
        if kind == "agree":
            agreed, key = self._agreement(), self.session.party_keys[name]
            signature = key.sign(agreed.text(name, agreed.digest)).hex()
            return agree.answer_agree(self._now, agreed.sheets, signature)
        if kind == "reveal":
            return Body({"seed": self._seeds[name].hex()})
        if kind in ("finish", keygen.PUBLIC_SHARES, CONFIRM):
            return Body()
        place = PROTOCOL.place(step)
        if place.commits:
            blobs = len(request.blobs)
            drawn = Body(blobs=(self._share(name),)) if place.step.opens else None
            reply = drawn or self._drawn_reply(name, place.opened, blobs)
            return self._rounds[name].commit(place.opened, reply, ())
        if place.fixed:
            return self._rounds[name].open(request)
        for phase in (KEYS, ROWS):
            if kind == phase.commit:
                if phase is KEYS:
                    self._rounds[name] = self._begun(name)
                return self._opening(name, phase).commit(self._drawn_reply(name, phase.open))
            if kind == phase.open:
                return self._openings[name, phase].open(request)
        return self._drawn_reply(name, step, len(request.blobs))

    def _opening(self, name: str, phase: Phase) -> Opening:
        """Digests are signed as the parties sign them: the simulator has keys of its own."""
        key, seed = self.session.party_keys[name], self._joint_seed()
        self._openings[name, phase] = Opening(phase.terms(seed, self._now.roster), name, key)
        return self._openings[name, phase]

    def _begun(self, name: str) -> Rounds:
        rounds = Rounds(self._now.roster, name, self.session.party_keys[name])
        rounds.begin(self._joint_seed())
        return rounds

    def _joint_seed(self) -> bytes:
        return self._agreement().joint_seed({n: s.hex() for n, s in self._seeds.items()})

    def _agreement(self) -> Agreement:
        """Sheets follow from the plan and from the schema's bound: no row is in them."""
        bound = next(iter(self.session.parties.values())).run.rows.schema.norm_bound
        sheets = keys_sheet(self._now), rows_sheet(self._now, bound)
        return agree.agreement(self._now, [digest_of(sheet) for sheet in sheets])

    def _drawn_reply(self, name: str, step: str, asked: int = 0) -> Body:
        """Uniform polynomials in the places of a reply; asked: blobs of the request."""
        kind, meta, plan = step.partition("/")[0], dict[str, Any](), self._plan
        if kind == ROWS.open:
            held = list(plan.layout.ciphertexts_of(plan.party_index(name)))
            asked, meta = len(held) + plan.layout.num_side_ciphertexts, {"ciphertexts": held}
        count = 2 * asked if kind == refresh.STEP else asked
        moduli = [primes for _, primes in shapes(plan, self._context, step, count)]
        # Polynomials of a blob: a key's digits, but for the public key's share.
        head = int(kind == KEYS.open)
        each = {ROWS.open: 2, refresh.STEP: 1}.get(kind, plan.ckks.num_digits)
        parts = [moduli[:head]] * head
        parts += [moduli[k : k + each] for k in range(head, len(moduli), each)]
        drawn = []
        for k, part in enumerate(parts):
            primes = tuple(prime for polynomial in part for prime in polynomial)
            drawn.append(rns.pack(self._drawn(name, f"{step}/{k}", primes), primes))
        return Body(meta, tuple(drawn))

    def _share(self, name: str) -> bytes:
        """Uniform, but for the last party: encoded weights + flooding - c0 - the others' shares."""
        context = self._context
        low = context.primes[:DECRYPTION_TOWERS]
        share = self._drawn(name, "decrypt", low)
        if self._c0 is not None and name == self._plan.names[-1]:
            slots = self._plan.layout.heads(self._weights / self._plan.unit)
            level = context.params.num_towers - len(low)
            empty = context.ciphertext([np.zeros_like(share)] * 2)
            encoded = context.cc.EvalAdd(empty, context.encode(slots, level))
            share = rns.subtract(context.polynomials_of(encoded)[0], self._c0, low)
            for other in self._plan.names[:-1]:
                share = rns.subtract(share, self._drawn(other, "decrypt", low), low)
            for party in self._plan.names:
                noise = SeededRandomness(self._seed, f"flood {party}")
                flooding = decrypt.flooding_of(self._plan)
                share = rns.add(share, flooding.draw(context, len(low), noise), low)
        return rns.pack(share, low)

    def _drawn(self, name: str, label: str, primes: tuple[int, ...]) -> Residues:
        """Uniform; the same in both passes."""
        seed = self._bytes(f"{name} {label}")
        return rns.uniform(seed, label, primes, self._plan.ckks.ring_dim)

    def _bytes(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._seed} {text}".encode()).digest()
