"""Plans as the product makes them for three owners of unequal size, of whom one colludes."""

from __future__ import annotations

import math
from typing import Any, cast

from ciphercohort.job.config import SimulationConfig
from parties.reader.schema import Classes, Label, NumericColumn, Schema
from protocols.names import SECURE_AGGREGATION
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.sums.plan import GradientPlan

ROWS, FEATURES = (1200, 900, 1500), 6


def calibrated(**options: Any) -> Calibration:
    """What these options make, from public figures alone."""
    given = {"parties": len(ROWS), "colluders": 1, "epsilon": 1.0, "delta": 1e-5, **options}
    figures = PublicFigures(rows_by_party=ROWS, num_features=FEATURES)
    return calibrate(figures, SimulationConfig(**given).wanted())


def regression(model: str, **options: Any) -> Calibration:
    """Of one output."""
    return calibrated(model=model, profile="fast-insecure", **options)


def sums(update: str = "gd", **options: Any) -> GradientPlan:
    """Of secure sums, with clips so small that the worst pair moves them by their sensitivity."""
    dual = {"batches": 4, "loss": "ridge", "rounds": 10} if update == "scd" else {"rounds": 4}
    options = {"protocol": SECURE_AGGREGATION, "update": update, "clip": 0.01, **dual, **options}
    members = tuple(
        Member(name=f"p{k}", rows=n, verify_key="00" * 32, commitment="00" * 32)
        for k, n in enumerate(ROWS)
    )
    return cast(GradientPlan, calibrated(**options).plan("session", members))


def certified(plan: Any) -> Calibration:
    """A plan of sums, whose rows are clipped to its own bound, with its certificate."""
    certificate = Mechanism.from_plan(plan, math.inf).certificate.require()
    return Calibration(template=plan, certificate=certificate)


def unit_schema(length: int, classes: int = 1) -> Schema:
    """So many features, rows clipped to norm 1; classes: of the label, 1: two values."""
    columns = tuple(NumericColumn(name=f"c{k}", low=0.0, high=1.0) for k in range(length - 1))
    label: Label | Classes = Label(name="y", negative="0", positive="1")
    if classes > 1:
        label = Classes(name="y", classes=tuple(map(str, range(classes))))
    return Schema(columns=columns, label=label, scaling="range", row_norm=1.0)


def dual_objective(**changes: Any) -> dict[str, Any]:
    """Steps of dual coordinates, as plans name them: without their room there is no other way."""
    fields = {"loss": "logistic", "ridge": 1.0, "batches": 1, "clip": 1.0, "schedule": "cyclic"}
    return {"kind": "dual", **fields, "row_scale": 1.0, **changes}


def dual_rule(rounds: int = 3, factor: float = 1.0) -> dict[str, Any]:
    """Their update."""
    return {"kind": "scd", "rounds": rounds, "factor": factor}
