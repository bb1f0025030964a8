"""Public figures of a plan, whichever its protocol: for summaries, tables and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.plan import kinds
from protocols.plan.run_plan import RunPlan
from protocols.words import count


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
        **kinds.figures(plan),
        "security_bits": plan.security_bits,
        "privacy": privacy_figures(plan),
        "replicas": kinds.replicas(plan),
    }


def run_words(plan: RunPlan) -> str:
    """What is trained, on how much, with which promise; part of a line."""
    promise = f"epsilon {plan.privacy.epsilon:g}" if plan.privacy else "no privacy noise"
    counts = [count(len(plan.members), "party"), count(plan.num_rows, "row")]
    counts += [count(plan.rounds, "iteration")]
    return ", ".join([f"{plan.model} by {plan.protocol}", *counts, promise])


def privacy_figures(plan: RunPlan) -> dict[str, Any] | None:
    """The promise; None without."""
    if plan.privacy is None:
        return None
    return {k: getattr(plan.privacy, k) for k in ("epsilon", "delta", "colluders", "sigma")}


def composed_of(certificate: Mapping[str, Any] | None, colluders: int) -> float | None:
    """Epsilon of all rounds composed, against so many; None where a certificate says nothing."""
    found = (certificate or {}).get("epsilon_composed") or ()
    return found[colluders] if colluders < len(found) else None


def coalitions_of(certificate: Mapping[str, Any] | None) -> Sequence[float]:
    """Epsilon against 0, 1, … other owners; empty where a certificate says nothing."""
    return (certificate or {}).get("epsilon") or ()


def encryption_words(plan: RunPlan) -> str:
    """One line for a person."""
    security = f"{plan.security_bits}-bit security" if plan.security_bits else "INSECURE toy ring"
    figures = kinds.figures(plan)
    modulus = figures.get("log_qp", figures.get("log_q"))
    depth = f", depth {figures['depth']}" if "depth" in figures else ""
    return f"{security}, ring dimension {figures['ring_dim']}, log2 of the modulus {modulus}{depth}"
