"""What a plan asks of a party, in the kernel's numbers."""

from __future__ import annotations

from functools import cache
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel import EVERY
from parties.kernel.channel import RECORDS
from parties.kernel.keys import KeysSheet
from parties.kernel.model import ModelSheet
from parties.kernel.rows import RowsSheet, packed
from parties.kernel.sums import SumsRound, SumsSheet
from parties.kernel.sums.gradients import LOGISTIC, Gradients
from parties.kernel.sums.row_function import RowFunction
from parties.kernel.sums.row_functions import OwnCode
from protocols.errors import PolicyError
from protocols.model.counts import columns_of
from protocols.model.plan import ModelPlan
from protocols.models.improved_lffr import ImprovedLffr
from protocols.plan import kinds
from protocols.plan.circuit_plan import CircuitPlan, Packed
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan


def row_function_of(plan: GradientPlan) -> RowFunction:
    """What a row adds to the sums of a plan.

    Raises:
        PolicyError: the kernel knows no such objective.
    """
    task, curvature = plan.task, plan.rule.curvature
    own = task.function_of(rows=plan.num_rows, rounds=plan.rounds, norm=plan.noise.norm)
    if own is not None:
        return own
    if not isinstance(task, RowObjective):
        raise PolicyError(f"objective={plan.objective.get('kind')!r} is not one of this party's")
    if task.kind == "torch":
        return OwnCode(clip=task.clip)
    return Gradients(
        loss=task.kind,
        clip=task.clip,
        curvature_clip=task.curvature_clip,
        outputs=task.outputs,
        constant=LOGISTIC if curvature is None else curvature.constant,
    )


def sums_sheet(plan: GradientPlan) -> SumsSheet:
    """Of a run of secure sums; the same for every party."""
    split, queries = plan.split, plan.queries
    gaussian = plan.noise.norm == 2

    @cache
    def asked(query: str, scale: float) -> SumsRound:
        if not scale:
            return SumsRound(query=query)
        grid = plan.noise.grid(scale, split)
        units = grid.units(split.share_std(scale) if gaussian else scale)
        return SumsRound(query=query, bits=grid.granularity_bits, units=units)

    scales = plan.noise_scales or (0.0,) * len(queries)
    return SumsSheet(
        session=plan.session,
        roster=tuple((member.name, member.verify_key) for member in plan.members),
        ring_dim=plan.cipher.ring_dim,
        primes=tuple(plan.cipher.primes),
        scale_bits=plan.cipher.scale_bits,
        length=plan.length,
        row_function=row_function_of(plan).fields(),
        weights=tuple(plan.row_weight(p) for p in range(len(plan.members))),
        rounds=tuple(asked(query, scale) for query, scale in zip(queries, scales, strict=True)),
        norm=plan.noise.norm,
        law=plan.mechanism if plan.noise_scales else "",
        honest=split.honest,
    )


def keys_sheet(plan: CircuitPlan) -> KeysSheet:
    """Of the keys of a run under threshold CKKS; the same for every party."""
    beside = {} if plan.cover is None else {"cover": plan.cover}
    make: Any = resolve_name(RECORDS["KeysSheet" if plan.cover is None else "CoveredSheet"])
    found: KeysSheet = make(
        **beside,
        session=plan.session,
        roster=tuple((member.name, member.verify_key) for member in plan.members),
        params=plan.ckks,
        rotations=tuple(plan.rotations),
        refreshes=tuple(len(plan.column_maps(k)) for k in range(len(plan.refreshes))),
        shown=tuple(np.flatnonzero(plan.shown).tolist()),
        coordinates=len(plan.shown),
        shown_error=kinds.shown_error_std(plan),
        error=kinds.model_error_std(plan),
        decryptions=plan.decryptions,
    )
    return found


def _noise(plan: CircuitPlan) -> dict[str, Any]:
    """Of every owner's noise; none without privacy."""
    if plan.privacy is None:
        return {}
    split, sigma = plan.split, plan.privacy.sigma
    grid = split.grid(sigma)
    return {
        "law": "gaussian",
        "honest": split.honest,
        "moves": plan.privacy.sensitivity,
        "bits": grid.granularity_bits,
        "units": grid.units(split.share_std(sigma)),
    }


def model_sheet(plan: ModelPlan, norm_bound: float) -> ModelSheet:
    """Of a run of an encrypted model; norm_bound: of the owner's rows, by its schema."""
    fitted = plan.fitted
    return ModelSheet(
        session=plan.session,
        roster=tuple((member.name, member.verify_key) for member in plan.members),
        rows=tuple(member.rows for member in plan.members),
        columns=columns_of(plan.layout),
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
        **_noise(plan),
    )


def _of_rows(plan: Any) -> dict[str, Any]:
    whitening, units = plan.whitening, plan.units
    return _curved(plan) | {
        "kind": "rows",
        "rounds": plan.rounds,
        "scale": units.row_scale,
        "side": units.side_scale,
        "start": plan.link.coefficients[0],
        "matrix": whitening.matrix if whitening else (),
        "signed": plan.signed,
    }


def _of_lffr(plan: Any) -> dict[str, Any]:
    units = plan.units
    return _curved(plan) | {
        "kind": "lffr",
        "rounds": plan.rounds,
        "scale": units.row_scale,
        "side": units.side_scale,
        "start": units.leading,
    }


def _curved(plan: Any) -> dict[str, Any]:
    return {"curvature": plan.curvature.range if plan.curvature else ()}


def _of_sums(plan: Any) -> dict[str, Any]:
    fitted, whitening = plan.fitted, plan.whitening
    return {
        "kind": "gram",
        "rounds": 1,
        "scale": plan.task.unit,
        "gamma": fitted.gamma if isinstance(fitted, ImprovedLffr) else 0.0,
        "target_bound": fitted.bound(plan.outputs),
        "most": plan.curvature_bound,
        "row_sums": plan.task.row_sums,
        "matrix": whitening.matrix if whitening else (),
    }


_ROWS = {"rows": _of_rows, "lffr": _of_lffr, "gram": _of_sums}
"""Of a sheet what a kind of plan has of its own."""


def rows_sheet(plan: Any, norm_bound: float) -> RowsSheet:
    """Of a run on encrypted rows or sums; norm_bound: of the owner's rows, by its schema."""
    return RowsSheet(
        session=plan.session,
        roster=tuple((member.name, member.verify_key) for member in plan.members),
        rows=tuple(member.rows for member in plan.members),
        num_features=plan.num_features,
        num_outputs=plan.outputs or 0,
        bound=plan.encoded_norm(norm_bound),
        **_noise(plan),
        **_ROWS[plan.kind](plan),
    )


def packed_slots(
    plan: CircuitPlan,
    name: str,
    rows: NDArray[np.float64],
    targets: NDArray[np.float64],
    noise: NDArray[np.float64],
    weight: NDArray[np.float64] | float = 1.0,
) -> Packed:
    """What a party encrypts, in the clear: for what stands in for its encryption."""
    sheet = rows_sheet(plan, float("inf"))
    found = packed.numbers(sheet, EVERY).values(sheet, rows, targets, noise, weight)
    return plan.place(name, *found)


def places(plan: CircuitPlan, sheet: RowsSheet, name: str) -> tuple[Any, list[NDArray[np.int32]]]:
    """Where a party's numbers stand: fields of its message, and for each slot the number's place.

    See `RowsSession.contribute`.
    """
    rows, first, arrays = sheet.rows[plan.party_index(name)], 1, []
    for shape in packed.numbers(sheet, EVERY).shapes(sheet, rows):
        size = int(np.prod(shape))
        arrays.append(np.arange(first, first + size, dtype=np.float64).reshape(shape))
        first += size
    meta, vectors = plan.place(name, *arrays)
    return meta, [vector.astype(np.int32) for vector in vectors]
