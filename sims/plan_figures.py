"""Public figures of a plan, whichever its protocol: for summaries, tables and their checks."""

from __future__ import annotations

import math
from typing import Any

from protocols.circuit_plan import CircuitPlan
from protocols.gradients import GradientPlan
from protocols.gram_plan import GramPlan
from protocols.lffr import LffrPlan
from protocols.plan import RunPlan
from protocols.rows import RowsPlan


def plan_figures(plan: RunPlan) -> dict[str, Any]:
    """What summary.json says of the plan."""
    return {
        "session": plan.session,
        "protocol": plan.protocol,
        "model": plan.model,
        "parties": len(plan.members),
        "rows": plan.num_rows,
        "features": plan.num_features,
        "iterations": plan.rounds,
        **training_figures(plan),
        **encryption_figures(plan),
        "security_bits": plan.security_bits,
        "privacy": privacy_figures(plan),
    }


def training_figures(plan: RunPlan) -> dict[str, Any]:
    """The update rule and what replaces the sigmoid."""
    if isinstance(plan, RowsPlan):
        return {"update": plan.update["kind"], "degree": plan.link.degree}
    if isinstance(plan, GramPlan):
        return {"update": "fixed-hessian", "outputs": plan.outputs, "ridge": plan.ridge}
    if isinstance(plan, LffrPlan):
        return {
            "update": "fixed-hessian" if plan.curvature else "gd",
            "degree": plan.link.degree,
            "outputs": plan.outputs,
            "ridge": plan.ridge,
        }
    if isinstance(plan, GradientPlan):
        return {"update": plan.update["kind"]}
    return {}


def encryption_figures(plan: RunPlan) -> dict[str, Any]:
    """Ring, modulus and scale."""
    if isinstance(plan, CircuitPlan):
        names = ("ring_dim", "depth", "scale_bits", "log_qp")
        return {name: getattr(plan.ckks, name) for name in names}
    if isinstance(plan, GradientPlan):
        cipher = plan.cipher
        return {
            "ring_dim": cipher.ring_dim,
            "scale_bits": cipher.scale_bits,
            "log_q": round(math.log2(cipher.modulus), 2),
        }
    return {}


def privacy_figures(plan: RunPlan) -> dict[str, Any] | None:
    """The promise; None without."""
    if plan.privacy is None:
        return None
    return {k: getattr(plan.privacy, k) for k in ("epsilon", "delta", "colluders", "sigma")}


def encryption_words(plan: RunPlan) -> str:
    """One line for a person."""
    security = f"{plan.security_bits}-bit security" if plan.security_bits else "INSECURE toy ring"
    figures = encryption_figures(plan)
    modulus = figures.get("log_qp", figures.get("log_q"))
    depth = f", depth {figures['depth']}" if "depth" in figures else ""
    return f"{security}, ring dimension {figures['ring_dim']}, log2 of the modulus {modulus}{depth}"
