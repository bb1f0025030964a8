"""What `--inference` adds to a run, before any key: sums, bytes, and its part of the promise."""

from __future__ import annotations

import math
from typing import Any

from protocols import traffic
from protocols.inference.budget import training_part
from protocols.inference.estimate import COUNTED, TOWARDS
from protocols.inference.objective import InformationObjective, ProductsObjective
from protocols.one_sum import OneSum
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.calibrate.one_sum import plan_sum, whole_mu
from protocols.privacy.gdp import epsilon_for_mu
from protocols.privacy.sum_certificate import MECHANISM_SHARE
from protocols.words import count, size
from sims.config import SimulationConfig
from sims.sums import sums_wanted


def inference_forecast(config: SimulationConfig, shape: PublicFigures) -> dict[str, Any] | None:
    """JSON-ready; None where none is asked for.

    sums: how many, None where it depends on the data; bytes_per_party: of one; epsilon_alone: of
    training and of the sums, each at its delta.
    """
    if not config.inference:
        return None
    wanted = sums_wanted(config.epsilon, config.delta, config.colluders)
    d, mu, parts = shape.num_features, None, None
    if config.epsilon is not None:
        training, own = training_part(config.epsilon, config.delta)
        whole = whole_mu(wanted)
        mu = math.sqrt(whole**2 - whole_mu(sums_wanted(training, own, config.colluders)) ** 2)
        alone = epsilon_for_mu(mu=mu, delta=MECHANISM_SHARE * config.delta)
        parts = {"training": training, "inference": alone, "in_all": config.epsilon}
    bound, sums = math.sqrt(d), 1 if mu is None else len((*TOWARDS, *COUNTED))
    task: OneSum = InformationObjective(
        model="logistic", theta=(0.0,) * d, row_norm=bound, epsilon_in_all=config.epsilon
    )
    if config.model == "linear":
        task, sums = (
            ProductsObjective(row_norm=bound, outputs=shape.outputs, epsilon_in_all=config.epsilon),
            1,
        )
    plan = plan_sum(shape, wanted, task, mu)
    return {
        "sums": sums if mu is not None or config.model == "linear" else None,
        "values": plan.length,
        "bytes_per_party": sum(traffic.bytes_per_party(plan).values()),
        "epsilon": parts,
    }


def inference_line(found: dict[str, Any]) -> str:
    """For a person."""
    number = "four to eight secure sums" if found["sums"] is None else None
    number = number or count(found["sums"], "secure sum")
    words = (
        f"standard errors: {number} of {found['values']:,} values, "
        f"{size(found['bytes_per_party'])} per party each"
    )
    parts = found["epsilon"]
    if parts is None:
        return f"{words}; exact"
    return (
        f"{words}; epsilon={parts['training']:.4g} of training and {parts['inference']:.4g} of "
        f"these make {parts['in_all']:g} in all"
    )
