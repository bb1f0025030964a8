"""`cohort plan`: everything about a run that can be known before any key, and without any data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from ciphercohort.after.inference_cost import inference_forecast
from ciphercohort.job.config import SimulationConfig
from ciphercohort.planning.comparison import Comparison, compare
from ciphercohort.planning.predicted import Predicted, Seconds, known, played, predict
from ciphercohort.planning.within import Choice, carried, choose, own
from ciphercohort.results.exact_sums import exact_fields, insecure_fields
from ciphercohort.results.shown import Shown
from ciphercohort.results.slot_report import slot_lines
from protocols.ckks.flooding import STATISTICAL_SECURITY_BITS
from protocols.costs import counts
from protocols.exchange.serialise import to_plain
from protocols.names import UNDER_CKKS
from protocols.plan import kinds
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.kinds import only
from protocols.plan.protocol import protocol_of
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.steps.decrypt import flooding_of
from protocols.sums.plan import GradientPlan
from protocols.words import count, duration, size


@dataclass(frozen=True, kw_only=True, repr=False)
class Forecast(Shown):
    """A plan with placeholders for names, keys and column names, and what it will cost.

    predicted: seconds, bytes and memory, None where nothing was rehearsed; operations: of a
    circuit; choice: within a budget, where one was given; comparison: with the other protocols,
    where there are any; inference: what standard errors add, where they are asked for.
    """

    shape: PublicFigures
    calibration: Calibration
    predicted: Predicted | None
    operations: dict[str, dict[int, int]]
    choice: Choice | None = None
    comparison: Comparison | None = None
    inference: dict[str, Any] | None = None

    def __repr__(self) -> str:
        """One line for a person."""
        plan = self.plan
        cost = "not rehearsed"
        if self.seconds:
            traffic = size(sum(self.bytes_per_party.values()))
            cost = f"{duration(self.seconds.total)}, {traffic} per party"
        return (
            f"Forecast({plan.model} by {plan.protocol}, {count(len(plan.members), 'party')}, "
            f"{count(plan.num_rows, 'row')}, {count(plan.rounds, 'iteration')}: {cost})"
        )

    @property
    def plan(self) -> RunPlan:
        """The template."""
        return self.calibration.template

    @property
    def seconds(self) -> Seconds | None:
        """None where nothing was rehearsed."""
        return self.predicted.seconds if self.predicted else None

    @property
    def bytes_per_party(self) -> dict[str, int]:
        """Largest party's in both directions, by phase; empty where nothing was rehearsed."""
        return self.predicted.bytes_per_party if self.predicted else {}

    @property
    def memory(self) -> dict[str, int]:
        """Largest resident set by role, and of one process [bytes]; empty likewise."""
        return self.predicted.memory if self.predicted else {}

    @property
    def epsilon_by_coalition(self) -> tuple[float, ...]:
        """Entry k: what k colluding parties see, k = 0 … P - 1; empty without privacy."""
        certificate = self.calibration.certificate
        return certificate.epsilon_by_coalition if certificate else ()

    def to_dict(self) -> dict[str, Any]:
        """One JSON object; epsilon: entry k is what k colluding parties see."""
        plan, certificate = self.plan, self.calibration.certificate
        body: dict[str, Any] = {
            **exact_fields(plan.opens_exact_sums),
            "rows": self.shape.rows,
            "features": self.shape.num_features - 1,
            "columns_with_bias": self.shape.num_features,
            "norm_bound": self.shape.norm_bound,
            "parties": len(plan.members),
            "protocol": plan.protocol,
            "model": plan.model,
            "update": dict(getattr(plan, "update", {"kind": kinds.figures(plan)["update"]})),
            "iterations": plan.rounds,
            "conditions": [],
            "binding": None,
            "epsilon": list(self.epsilon_by_coalition),
            "epsilon_composed": list(certificate.epsilon_composed) if certificate else [],
            "privacy": None,
            "figures": dict(certificate.figures) if certificate else {},
            "assumptions": list(certificate.assumptions) if certificate else [],
            **_encryption(plan, self.shape.norm_bound),
            "operations_per_iteration": self.operations,
            "seconds": self.seconds.by_phase if self.seconds else None,
            "seconds_per_iteration": self.seconds.iteration if self.seconds else None,
            "waiting_seconds_per_iteration": self.seconds.waiting if self.seconds else None,
            "seconds_per_iteration_all": self.seconds.everybody if self.seconds else None,
            "seconds_per_iteration_path": self.seconds.path if self.seconds else None,
            "total_seconds": self.seconds.total if self.seconds else None,
            "rehearsed_rounds": self.predicted.played.rounds if self.predicted else None,
            "bytes_per_party": self.bytes_per_party,
            "peak_memory_mb": {role: round(held / 1e6) for role, held in self.memory.items()},
            "replica": None,
            "notes": list(self.calibration.notes),
        }
        if self.predicted:
            seconds, relayed = self.predicted.replica
            own, memory = (round(self.memory[role] / 1e6) for role in ("party", "coordinator"))
            body["replica"] = {
                "seconds": seconds,
                "bytes": relayed,
                "memory_mb": memory,
                "memory_in_all_mb": own + memory,
                "seconds_at_100_mbit": round(relayed * 8 / 1e8, 1),
            }
        if self.inference:
            body["inference"] = self.inference
        if self.choice:
            body["within"] = list(self.choice.lines)
        if self.comparison:
            body["comparison"] = self.comparison.to_dict()
        if certificate:
            body["conditions"] = [condition.to_dict() for condition in certificate.conditions]
            body["binding"] = certificate.binding.name
        if plan.privacy:
            names = ("epsilon", "delta", "colluders", "sigma", "share_std", "sensitivity")
            body["privacy"] = {name: getattr(plan.privacy, name) for name in names}
        if plan.security_bits < 128:
            body |= insecure_fields(True)
        return body


def _encryption(plan: RunPlan, norm_bound: float) -> dict[str, Any]:
    """Ring, keys, what masks hide and what the decryption adds."""
    if plan.protocol not in UNDER_CKKS:
        cipher = only(GradientPlan, plan).cipher
        return {"sums": {**kinds.figures(plan), "error_bound": cipher.error_bound}}
    circuit = cast(CircuitPlan, plan)
    params = circuit.ckks
    body: dict[str, Any] = {
        "cover": plan.cover,
        "slot_bound": plan.slot_bound,
        "slots": list(slot_lines(plan, norm_bound)),
        "ckks": {
            **to_plain(params),
            "log_qp": params.log_qp,
            "max_log_qp": params.max_log_qp,
            "rotation_keys": len(circuit.rotations),
            "ciphertexts": counts.num_ciphertexts(circuit),
        },
        "decryption": {
            "flooding_bits": STATISTICAL_SECURITY_BITS,
            "flooding_std_log2": math.log2(flooding_of(circuit).std),
            "release_error_std": protocol_of(plan).release_error(plan),
        },
    }
    own = counts.described(circuit)
    body["ckks"] |= own.pop("ckks", {})
    return body | own


def forecast(
    config: SimulationConfig,
    shape: PublicFigures,
    *,
    timing: bool = True,
    again: bool = False,
    told: bool = False,
) -> Forecast:
    """Choose everything as `simulate` would, and predict its cost.

    timing: rehearse what this machine has not rehearsed yet: it takes seconds of sums, up to a
    minute of each protocol under CKKS; again: whatever is known; told: progress goes to standard
    error.

    Raises:
        PrivacyError: no certified setting exists; the message names the condition that binds.
        ParameterError: options that do not fit, or a budget in which nothing does.
    """
    inference = inference_forecast(config, shape)
    config = config.for_training()
    choice = None
    if config.within is not None:
        choice = choose(config, shape, carried(told), own(told))
    found = choice.best.found if choice else calibrate(shape, config.wanted())
    plan = found.template

    find = played(again, told) if timing else known
    return Forecast(
        shape=shape,
        calibration=found,
        predicted=predict(found, find),
        operations=operations_by_level(plan),
        choice=choice,
        comparison=compare(config, shape, found, find),
        inference=inference,
    )


def operations_by_level(plan: RunPlan) -> dict[str, dict[int, int]]:
    """How often each operation runs in an iteration in the middle of the run, by level."""
    if plan.protocol not in UNDER_CKKS:
        return {}
    iteration = counts.iterations(cast(CircuitPlan, plan))[plan.rounds // 2]
    found: dict[str, dict[int, int]] = {}
    for (name, level), amount in sorted(iteration.operations.items()):
        found.setdefault(name, {})[level] = amount
    return found
