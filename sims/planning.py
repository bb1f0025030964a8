"""`cohort plan`: everything about a run that can be known before any key, and without any data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

from protocols import planner
from protocols.ckks.cost import UnitTimes, unit_times
from protocols.ckks.flooding import STATISTICAL_SECURITY_BITS
from protocols.decrypt import flooding_of, release_error_std
from protocols.errors import ParameterError
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.rows import RowsPlan
from protocols.serialise import to_plain
from sims.config import SimulationConfig
from sims.slot_report import slot_lines


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A plan with placeholders for names, keys and column names, and what it will cost.

    seconds: None where this machine was not timed.
    """

    shape: PublicFigures
    calibration: Calibration
    seconds: planner.Seconds | None
    bytes_per_party: dict[str, int]
    memory: dict[str, int]
    operations: dict[str, dict[int, int]]

    @property
    def plan(self) -> RowsPlan:
        """The template."""
        return cast(RowsPlan, self.calibration.template)

    @property
    def epsilon_by_coalition(self) -> tuple[float, ...]:
        """Entry k: what k colluding parties see, k = 0 … P - 1; empty without privacy."""
        certificate = self.calibration.certificate
        return certificate.epsilon_by_coalition if certificate else ()

    def to_dict(self) -> dict[str, Any]:
        """One JSON object; epsilon: entry k is what k colluding parties see."""
        plan, certificate = self.plan, self.calibration.certificate
        params, layout = plan.ckks, plan.layout
        body: dict[str, Any] = {
            "rows": self.shape.rows,
            "features": self.shape.num_features - 1,
            "columns_with_bias": self.shape.num_features,
            "norm_bound": self.shape.norm_bound,
            "parties": len(plan.members),
            "cover": plan.cover,
            "slot_bound": plan.slot_bound,
            "slots": list(slot_lines(plan, self.shape.norm_bound)),
            "update": dict(plan.update),
            "iterations": plan.rounds,
            "degree": plan.link.degree,
            "interval": plan.link.radius,
            "conditions": [],
            "binding": None,
            "epsilon": list(self.epsilon_by_coalition),
            "privacy": None,
            "figures": dict(certificate.figures) if certificate else {},
            "assumptions": list(certificate.assumptions) if certificate else [],
            "ckks": {
                **to_plain(params),
                "log_qp": params.log_qp,
                "max_log_qp": params.max_log_qp,
                "rotation_keys": len(layout.rotations),
                "features_per_ciphertext": layout.num_blocks,
                "data_ciphertexts": layout.num_data_ciphertexts,
                "side_ciphertexts": layout.num_side_ciphertexts,
            },
            "decryption": {
                "flooding_bits": STATISTICAL_SECURITY_BITS,
                "flooding_std_log2": math.log2(flooding_of(plan)),
                "release_error_std": release_error_std(plan),
            },
            "operations_per_iteration": self.operations,
            "seconds": self.seconds.by_phase if self.seconds else None,
            "seconds_per_iteration": self.seconds.iteration if self.seconds else None,
            "waiting_seconds_per_iteration": self.seconds.waiting if self.seconds else None,
            "total_seconds": self.seconds.total if self.seconds else None,
            "bytes_per_party": self.bytes_per_party,
            "peak_memory_mb": {role: round(size / 2**20) for role, size in self.memory.items()},
            "notes": list(self.calibration.notes),
        }
        if certificate:
            body["conditions"] = [condition.to_dict() for condition in certificate.conditions]
            body["binding"] = certificate.binding.name
        if plan.privacy:
            privacy = plan.privacy
            body["privacy"] = {
                "epsilon": privacy.epsilon,
                "delta": privacy.delta,
                "colluders": privacy.colluders,
                "sigma": privacy.sigma,
                "share_std": privacy.share_std,
                "sensitivity": privacy.sensitivity,
            }
        if params.security_bits < 128:
            body["INSECURE"] = "toy ring without security; for tests only"
        return body


def forecast(
    config: SimulationConfig,
    shape: PublicFigures,
    *,
    timing: bool = True,
    times: UnitTimes | None = None,
) -> Forecast:
    """Choose everything as `simulate` would, and predict its cost.

    timing: predict seconds (measures this machine once, about three seconds); times: known ones.

    Raises:
        PrivacyError: no certified setting exists; the message names the condition that binds.
        ParameterError: options that do not fit.
    """
    found = calibrate(shape, Wanted.of(config))
    plan = cast(RowsPlan, found.template)
    if timing and times is None:
        times = unit_times(plan.ckks)
    return Forecast(
        shape=shape,
        calibration=found,
        seconds=planner.seconds(plan, times) if timing and times else None,
        bytes_per_party=planner.bytes_per_party(plan),
        memory=planner.memory(plan),
        operations=operations_by_level(plan),
    )


def operations_by_level(plan: RowsPlan) -> dict[str, dict[int, int]]:
    """How often each operation runs in an iteration in the middle of the run, by level."""
    iteration = planner.iterations(plan)[plan.rounds // 2]
    found: dict[str, dict[int, int]] = {}
    for (name, level), count in sorted(iteration.operations.items()):
        found.setdefault(name, {})[level] = count
    return found


def shape_asked(
    config: SimulationConfig,
    rows: int | None,
    features: int | None,
    norm_bound: float | None,
) -> tuple[SimulationConfig, PublicFigures]:
    """The shape that is given, or that of the data; and the configuration for it.

    Raises:
        SchemaError, DataError, ParameterError: both are given, or neither; or as `simulate`.
    """
    given = {"rows": rows, "features": features, "norm-bound": norm_bound}
    if config.data is not None:
        extra = ", ".join(name for name, value in given.items() if value is not None)
        if extra:
            raise ParameterError(f"{extra} and data are both given: the data fix them")
        return shape_of_data(config)
    if rows is None or features is None:
        raise ParameterError(
            "the shape of the data is missing: give --rows and --features, or --data FILE"
        )
    if config.split != "even" or config.parties is None:
        raise ParameterError(f"split={config.split!r} needs data: add --data FILE, or leave it out")
    bound = 1.0 if norm_bound is None else norm_bound
    shape = PublicFigures.even(
        rows=rows, features=features, parties=config.parties, norm_bound=bound
    )
    return config, shape


def shape_of_data(config: SimulationConfig) -> tuple[SimulationConfig, PublicFigures]:
    """The shape that `simulate` would train on; reads the data, for their shape alone.

    Raises:
        SchemaError, DataError, ParameterError: as `simulate`.
    """
    import numpy as np

    from sims.prepare import prepare
    from sims.simulation import noise_root

    data = prepare(config, np.random.default_rng(noise_root(config)))
    shape = PublicFigures(
        rows_by_party=tuple(shard.rows for shard in data.shards.values()),
        num_features=data.schema.num_features,
        norm_bound=data.schema.norm_bound,
    )
    return replace(config, parties=len(data.shards)), shape
