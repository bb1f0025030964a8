"""What a plan asks of a party, in the kernel's numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

from parties.kernel.columns import Columns
from parties.kernel.sheet import ModelSheet, SumsRound, SumsSheet
from protocols.gradients import GradientPlan
from protocols.model_plan import ModelPlan
from protocols.models.improved_lffr import ImprovedLffr
from protocols.objectives import DualObjective


def sums_sheet(plan: GradientPlan) -> SumsSheet:
    """Of a run of secure sums; the same for every party."""
    task, split, queries = plan.task, plan.split, plan.queries
    weight = max(plan.row_weight(p) for p in range(len(plan.members)))
    gaussian = plan.noise.norm == 2

    @cache
    def asked(query: str, scale: float) -> SumsRound:
        most, moves = task.norm_bound(query) * weight, plan.sensitivity(query)
        if not scale:
            return SumsRound(query=query, most=most, moves=moves)
        grid = plan.noise.grid(scale, split)
        units = grid.units(split.share_std(scale) if gaussian else scale)
        return SumsRound(
            query=query, most=most, moves=moves, bits=grid.granularity_bits, units=units
        )

    scales = plan.noise_scales or (0.0,) * len(queries)
    dual = task if isinstance(task, DualObjective) else None
    return SumsSheet(
        session=plan.session,
        roster=tuple((member.name, member.verify_key) for member in plan.members),
        ring_dim=plan.cipher.ring_dim,
        primes=tuple(plan.cipher.primes),
        scale_bits=plan.cipher.scale_bits,
        length=plan.length,
        row_function=str(plan.objective.get("kind")),
        rounds=tuple(asked(query, scale) for query, scale in zip(queries, scales, strict=True)),
        law=plan.mechanism if plan.noise_scales else "",
        honest=split.honest,
        batches=dual.public_batches if dual else 1,
        coins=dual is not None and dual.rate < 1,
    )


def model_sheet(plan: ModelPlan, norm_bound: float) -> ModelSheet:
    """Of a run of an encrypted model; norm_bound: of the owner's rows, by its schema."""
    privacy, split, fitted = plan.privacy, plan.split, plan.fitted
    noise: dict[str, Any] = {}
    if privacy is not None:
        grid = split.grid(privacy.sigma)
        noise = {
            "law": "gaussian",
            "honest": split.honest,
            "moves": privacy.sensitivity,
            "bits": grid.granularity_bits,
            "units": grid.units(split.share_std(privacy.sigma)),
        }
    return ModelSheet(
        session=plan.session,
        roster=tuple((member.name, member.verify_key) for member in plan.members),
        rows=tuple(member.rows for member in plan.members),
        columns=Columns.of(plan.layout),
        circuit=plan.circuit,
        link=plan.link.coefficients,
        radius=plan.link.radius,
        scale=plan.units.row_scale,
        rounds=plan.rounds,
        bound=plan.encoded_norm(norm_bound),
        batches=plan.batches,
        lost=0 if plan.cover is None else len(plan.members) - plan.cover,
        terms=tuple(plan.row_terms),
        matrix=plan.whitening.matrix if plan.whitening else (),
        signed=plan.signed,
        gamma=fitted.gamma if isinstance(fitted, ImprovedLffr) else 0.0,
        unit=plan.target_unit,
        **noise,
    )
