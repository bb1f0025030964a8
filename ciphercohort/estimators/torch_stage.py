"""One stage of a torch module's training: a session of its own, or the same in plaintext."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coordinator.coordinator import Coordinator, Observer
from coordinator.costs import Costs
from parties.verifier.party import Party
from parties.verifier.torch_step import TorchModel
from protocols.exchange.messages import new_signing_key
from protocols.exchange.transcript import Transcript
from protocols.plan.run_plan import Member
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss.ledger import Ledger
from protocols.steps.whole import Outcome
from protocols.sums.plain import run_in_plain
from protocols.sums.plan import GradientPlan, Vector
from sims.local import run_parties
from sims.party_process import PartySpec

# (t, weights after it), t = 0, 1, … of the stage
OnWeights = Callable[[int, Vector], None]
MakePlan = Callable[[str, tuple[Member, ...]], GradientPlan]


@dataclass(frozen=True, kw_only=True)
class TorchPartySpec(PartySpec):
    """What makes an owner of a stage.

    model: on the owner's machine; first: round that the stage begins with; ledger: the owner's.
    """

    model: TorchModel
    first: int
    ledger: Ledger | None

    def noise_source(self) -> SeededRandomness:
        """The owner's noise stream of this stage."""
        return SeededRandomness(self.noise_seed, f"{self.name}/{self.first}")

    def build(self) -> Party:
        """The party."""
        return Party.of(
            name=self.name,
            shard=self.shard,
            signing_key=Ed25519PrivateKey.from_private_bytes(self.signing_key),
            coordinator_key=self.coordinator_key,
            policy=self.policy,
            randomness=self.noise_source(),
            ledger=self.ledger,
            dataset=self.name if self.ledger else "",
            open_contributor=self.model.open_contributor,
        )


Specs = Mapping[str, TorchPartySpec]


def run_encrypted(
    make_plan: MakePlan, specs: Specs, start: Vector, on_weights: OnWeights, processes: bool = False
) -> tuple[Outcome, Costs]:
    """One session: the same roles, messages and code as a deployment.

    Raises:
        ProtocolError: a party failed or refused; `culprit` names it.
    """
    session = uuid.uuid4().hex
    coordinator = Coordinator(
        session=session,
        signing_key=new_signing_key(),
        party_keys={name: spec.verify_key for name, spec in specs.items()},
        make_plan=partial(make_plan, session),
        transcript=Transcript(),
        observer=Observer(on_weights=on_weights),
        start=start,
    )
    key = coordinator.verify_key
    ready = {name: replace(spec, coordinator_key=key) for name, spec in specs.items()}
    ran = run_parties(coordinator, ready, processes)
    return ran.outcome, ran.costs


def run_plain(make_plan: MakePlan, specs: Specs, start: Vector) -> Vector:
    """The parties' own contributions and noise, summed in float64; the weights at the end."""
    members = tuple(
        Member(name=name, rows=spec.shard.rows, verify_key=spec.verify_key, commitment="")
        for name, spec in specs.items()
    )
    plan = make_plan("twin", members)
    sources = {name: spec.noise_source() for name, spec in specs.items()}
    owners = {
        name: spec.model.open_contributor(plan, name, spec.shard, sources[name])
        for name, spec in specs.items()
    }

    return run_in_plain(plan, owners, sources, start)
