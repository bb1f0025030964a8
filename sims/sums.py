"""One sum over the rows of simulated parties, through the protocol that a deployment would run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from coordinator.coordinator import Observer
from coordinator.costs import Costs
from parties.data.schema import Schema
from protocols.gradients import GradientPlan
from protocols.messages import new_signing_key, public_bytes
from protocols.names import SECURE_AGGREGATION
from protocols.one_sum import OneSum
from protocols.plan import Member, RunPlan
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.mechanism import Mechanism
from protocols.private_files import FOLDER_MODE
from sims.figures import figures_of
from sims.party_process import PartySpec
from sims.result import Array
from sims.run_folder import TRANSCRIPT
from sims.session import session_of


def sums_wanted(epsilon: float | None, delta: float, colluders: int) -> Wanted:
    """The promise of sums, all together."""
    return Wanted(
        protocol=SECURE_AGGREGATION, update="gd", epsilon=epsilon, delta=delta, colluders=colluders
    )


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One finished sum.

    values: the sum over rows, divided by their number, shape (length,); noise_std: of each value,
    of all parties, 0 without privacy; mechanism: what it cost, None without privacy.
    """

    plan: GradientPlan
    values: Array
    noise_std: float
    mechanism: Mechanism | None
    head: str


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Sums over the rows of the same parties, one after the other.

    specs: parties; schema: of their rows; wanted: the promise; folder: where transcripts go, None:
    nowhere; costs: of all sums so far.
    """

    specs: Mapping[str, PartySpec]
    schema: Schema
    wanted: Wanted
    folder: Path | None = None
    processes: bool = False
    done: list[Opened] = field(default_factory=list)
    costs: list[Costs] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """N, of all parties."""
        return sum(spec.shard.rows for spec in self.specs.values())

    def plan(self, task: OneSum, mu: float | None = None) -> GradientPlan:
        """The plan of a sum, certified; session and members are placeholders.

        Raises:
            ParameterError, PrivacyError: no such plan.
        """
        figures = figures_of(self.schema, (spec.shard.rows for spec in self.specs.values()))
        plan = plan_sum(figures, self.wanted, task, mu)
        if plan.privacy:
            Mechanism.from_plan(plan, figures.norm_bound).require()
        return plan

    def open(self, task: OneSum, mu: float | None = None) -> Opened:
        """Run it; mu: what it may cost, None: all of the promise.

        Raises:
            CohortError: it is refused, or aborted.
        """
        template = self.plan(task, mu)

        def make_plan(session: str, members: tuple[Member, ...]) -> RunPlan:
            return replace(template, session=session, members=members)

        signing_key = new_signing_key()
        key = public_bytes(signing_key)
        ran = session_of(
            specs={name: replace(s, coordinator_key=key) for name, s in self.specs.items()},
            signing_key=signing_key,
            make_plan=make_plan,
            transcript=self._transcript(task),
            messages=None,
            observer=Observer(),
            processes=self.processes,
        )
        plan = ran.outcome.plan
        if not isinstance(plan, GradientPlan):
            raise AssertionError("a sum has a plan of sums")
        norm_bound = self.schema.norm_bound
        opened = Opened(
            plan=plan,
            values=ran.outcome.weights,
            noise_std=plan.split.total_std(max(plan.noise_scales, default=0.0)),
            mechanism=Mechanism.from_plan(plan, norm_bound) if plan.privacy else None,
            head=ran.head,
        )
        self.done.append(opened)
        self.costs.append(ran.costs)
        return opened

    def _transcript(self, task: OneSum) -> Path | None:
        if self.folder is None:
            return None
        path = self.folder / f"{task.kind}-{len(self.done) + 1}"
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        return path / TRANSCRIPT
