"""From a cell to what is run: rule, noise by round, bounds; the same choices as a simulation's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.objectives import RowObjective
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rows import RowsChoice, choose_rows
from protocols.privacy.calibrate.sums import SumsChoice, choose_sums
from protocols.updates.update import Update
from sims.config import SimulationConfig

Floats = NDArray[np.float64]
COVERED = {
    ENCRYPTED_ROWS: ("barrier", "gd", "nag"),
    SECURE_AGGREGATION: ("barrier", "gd", "clipped-gd", "nag", "hb", "masg", "nag-opt", "masg-opt"),
}
"""Rules whose plaintext twin runs for many seeds at once; encrypted cells take them all."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all seeds of a cell have in common, and what one seed's rows fix.

    rule: the update; link: z -> mean, on arrays; sigma: of every round, std on the mean gradient
    that the promise needs, shape (T,), zeros without privacy; row_weights: by party, of one row in
    the aggregate; clip: bound on a row's gradient, None where rows alone bound it; radius: of the
    sigmoid polynomial, None where the sigmoid is exact; iterate_bound: R, None without; facts: for
    the table.
    """

    rule: Update
    link: Callable[[Floats], Floats]
    sigma: Floats
    row_weights: tuple[float, ...]
    clip: float | None
    radius: float | None
    iterate_bound: float | None
    facts: dict[str, Any]
    chosen: RowsChoice | SumsChoice


def open_setting(
    config: SimulationConfig,
    *,
    rows_by_party: tuple[int, ...],
    num_features: int,
    norm_bound: float,
) -> Setting:
    """The setting for these public figures.

    Raises:
        PrivacyError: nothing is certified. ParameterError: options that do not fit.
    """
    if config.update not in COVERED[config.protocol]:
        raise ParameterError(
            f"update={config.update!r} has no twin for many seeds at once; take "
            f"{', '.join(COVERED[config.protocol])}, or encrypted cells alone"
        )
    # Without the data, which do not enter: the same choice is made once.
    bare = replace(config, data=None, label=None, schema=None, test=None, exclude=(), split="even")
    figures = PublicFigures(
        rows_by_party=rows_by_party, num_features=num_features, norm_bound=norm_bound
    )
    if config.protocol == SECURE_AGGREGATION:
        return _of_sums(_chosen(choose_sums, figures, bare), rows_by_party)
    return _of_shards(_chosen(choose_rows, figures, bare), rows_by_party)


@lru_cache(maxsize=64)
def _chosen(choose: Callable[..., Any], figures: PublicFigures, config: SimulationConfig) -> Any:
    return choose(figures, Wanted.of(config))


def _of_shards(chosen: RowsChoice, rows_by_party: tuple[int, ...]) -> Setting:
    sigma = chosen.privacy.sigma if chosen.privacy else 0.0
    figures = chosen.certificate.figures if chosen.certificate else {}
    rule = chosen.rule
    return Setting(
        rule=rule,
        link=chosen.link.polynomial,
        sigma=np.full(rule.rounds, sigma),
        row_weights=(1 / sum(rows_by_party),) * len(rows_by_party),
        clip=None,
        radius=chosen.link.polynomial.radius,
        iterate_bound=float(figures["R"]) if "R" in figures else None,
        facts={**_rule_facts(rule), "degree": chosen.link.polynomial.degree},
        chosen=chosen,
    )


def _of_sums(chosen: SumsChoice, rows_by_party: tuple[int, ...]) -> Setting:
    objective, rule, rows = chosen.objective, chosen.rule, sum(rows_by_party)
    if not isinstance(objective, RowObjective):  # `COVERED` leaves dual rules out
        raise AssertionError("only objectives over rows have a twin here")
    weights = chosen.weights
    each = (
        tuple(w / n for w, n in zip(weights, rows_by_party, strict=True))
        if weights
        else (1 / rows,) * len(rows_by_party)
    )
    return Setting(
        rule=rule,
        link=expit,
        sigma=np.array(chosen.noise_scales) if chosen.noise_scales else np.zeros(rule.rounds),
        row_weights=each,
        clip=objective.clip,
        radius=None,
        iterate_bound=None,
        facts={**_rule_facts(rule), "scale_bits": chosen.cipher.scale_bits},
        chosen=chosen,
    )


def _rule_facts(rule: Update) -> dict[str, Any]:
    named = {"learning_rate": "eta", "ridge": "ridge", "weight": "lambda", "theta": "theta"}
    found = {words: getattr(rule, name, None) for name, words in named.items()}
    return {"T": rule.rounds, **{name: v for name, v in found.items() if v is not None}}
