"""Payload bytes of a run from its plan alone: residues and points, without headers."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.aggregate.parameters import AggregateParameters
from protocols.ckks import residues as rns
from protocols.gradients import GradientPlan
from protocols.plan import RunPlan
from protocols.planner import exchanges
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rows import RowsChoice, rows_plan
from protocols.privacy.calibrate.sums import SumsChoice
from protocols.rows import RowsPlan
from sims.config import SimulationConfig

# Values travel as float64; a coefficient of a masked secret as 16 bits.
_VALUE, _MASKED = 8, 2


def setting_traffic(
    config: SimulationConfig,
    chosen: RowsChoice | SumsChoice,
    sizes: Sequence[int],
    num_features: int,
) -> dict[str, float]:
    """Bytes of the busiest party and of the coordinator; none for one client alone."""
    if len(sizes) < 2:
        return {}
    if isinstance(chosen, SumsChoice):
        rounds = len(chosen.objective.queries(chosen.rule.rounds))
        return _sums(chosen.cipher, rounds, num_features, len(sizes))
    figures = PublicFigures(rows_by_party=tuple(sizes), num_features=num_features)
    return _rows(rows_plan(figures, Wanted.of(config), chosen))


def plan_traffic(plan: RunPlan) -> dict[str, float]:
    """The same for a plan at hand."""
    if isinstance(plan, GradientPlan):
        return _sums(plan.cipher, len(plan.queries), plan.length, len(plan.members))
    if isinstance(plan, RowsPlan):
        return _rows(plan)
    return {}


def _sums(cipher: AggregateParameters, rounds: int, length: int, parties: int) -> dict[str, float]:
    each = _MASKED * cipher.ring_dim + rounds * (_VALUE * length + cipher.num_bytes(length))
    return {"bytes_party": float(each), "bytes_coordinator": float(parties * each)}


def _rows(plan: RowsPlan) -> dict[str, float]:
    """Parties differ in how many data ciphertexts they have rows in, and in nothing else."""
    first = sum(each.request.size + each.reply.size for each in exchanges(plan, plan.names[0]))
    held = [len(plan.layout.ciphertexts_of(k)) for k in range(len(plan.names))]
    size = 2 * rns.packed_size((0,) * plan.ckks.num_towers, plan.ckks.ring_dim)
    by_party = [first + size * (count - held[0]) for count in held]
    return {"bytes_party": float(max(by_party)), "bytes_coordinator": float(sum(by_party))}
