"""A cell in plaintext, all its seeds at once.

Every client draws its own noise share, and the shares are added up as the protocol adds them, so
that a wrong share shows. They are float64 Gaussians (`lab.audits.many_twins`). One more run without
noise rides along, as the reference of `model_noise`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ciphercohort.job.config import SimulationConfig
from protocols.aggregate import AggregateParameters
from protocols.ckks import DECRYPTION_TOWERS, REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.errors import ParameterError, PrivacyError
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan.kinds import only
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rows import RowsChoice, choose_rows, rows_plan
from protocols.privacy.calibrate.sums import SumsChoice, choose_sums
from protocols.privacy.laws.shares import NoiseSplit
from protocols.rows.plan import RowsPlan
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan
from protocols.updates.update import Update
from sims.lab.audits.many_twins import train_many
from sims.lab.studies.noise import components
from sims.lab.studies.noise.grid import Cell
from sims.lab.studies.noise.measurement import Measurement
from sims.lab.studies.noise.source import Source, draw_groups, levels, open_pool
from sims.prepare import PreparedData
from sims.twin import score

Floats = NDArray[np.float64]
Chosen = RowsChoice | SumsChoice
COVERED = {
    ENCRYPTED_ROWS: ("barrier", "gd", "nag"),
    ENCRYPTED_MODEL: ("barrier", "gd", "nag"),
    SECURE_AGGREGATION: ("barrier", "gd", "clipped-gd", "nag", "hb", "masg", "nag-opt", "masg-opt"),
}
"""Rules whose plaintext twin runs for many seeds at once; encrypted cells take them all."""
QUALITY = ("accuracy", "auc", "log_loss")
_BLOCK = 512
# Values travel as float64; a coefficient of a masked secret as 16 bits.
_VALUE, _MASKED = 8, 2


# -- what is run ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all seeds of a cell have in common: the same choices as a simulation's.

    rule: the update; link: z -> mean, on arrays; sigma: of every round, std on the mean gradient
    that the promise needs, shape (T,), zeros without privacy; row_weights: by party, of one row in
    the aggregate; bounds: by component; facts: for the table; clip: bound on a row's gradient, None
    where rows alone bound it.
    """

    rule: Update
    link: Callable[[Floats], Floats]
    sigma: Floats
    row_weights: tuple[float, ...]
    bounds: dict[str, float]
    facts: dict[str, Any]
    clip: float | None = None

    @property
    def rms_sigma(self) -> float:
        """Over the rounds."""
        return float(np.sqrt(np.mean(self.sigma**2)))


def open_setting(
    config: SimulationConfig, rows_by_party: tuple[int, ...], num_features: int, norm_bound: float
) -> tuple[Setting, Chosen]:
    """The setting for these public figures, and the choice that it comes from.

    Raises:
        PrivacyError: nothing is certified. ParameterError: options that do not fit.
    """
    if config.update not in COVERED[config.protocol]:
        raise ParameterError(
            f"update={config.update!r} has no twin for many seeds at once; take "
            f"{', '.join(COVERED[config.protocol])}, or encrypted cells alone"
        )
    figures = PublicFigures(
        rows_by_party=rows_by_party, num_features=num_features, norm_bound=norm_bound
    )
    return _choose(figures, config.wanted())


@lru_cache(maxsize=64)
def _choose(public: PublicFigures, wanted: Wanted) -> tuple[Setting, Chosen]:
    rows, total = np.array(public.rows_by_party), public.rows
    if wanted.protocol == SECURE_AGGREGATION:
        sums = choose_sums(public, wanted)
        rule, objective = sums.rule, sums.objective
        if not isinstance(objective, RowObjective):  # `COVERED` leaves dual rules out
            raise AssertionError("only objectives over rows have a twin here")
        setting = Setting(
            rule=rule,
            link=expit,
            sigma=np.array(sums.noise_scales) if sums.noise_scales else np.zeros(rule.rounds),
            row_weights=tuple(np.array(sums.weights or rows / total) / rows),
            bounds={},
            facts={**_rule_facts(rule), "scale_bits": sums.cipher.scale_bits},
            clip=objective.clip,
        )
        return setting, sums
    chosen = choose_rows(public, wanted)
    rule, polynomial = chosen.rule, chosen.link.polynomial
    figures = chosen.certificate.figures if chosen.certificate else {}
    iterates = {"largest_iterate": float(figures["R"])} if "R" in figures else {}
    setting = Setting(
        rule=rule,
        link=polynomial,
        sigma=np.full(rule.rounds, chosen.privacy.sigma if chosen.privacy else 0.0),
        row_weights=(1 / total,) * public.parties,
        bounds={**iterates, "largest_logit": polynomial.radius},
        facts={**_rule_facts(rule), "degree": polynomial.degree},
    )
    return setting, chosen


def _rule_facts(rule: Update) -> dict[str, Any]:
    named = {"learning_rate": "eta", "ridge": "ridge", "weight": "lambda", "theta": "theta"}
    found = {words: getattr(rule, name, None) for name, words in named.items()}
    return {"T": rule.rounds, **{name: v for name, v in found.items() if v is not None}}


# -- payload bytes, from the plan alone: residues and points, without headers ----------------------


def setting_traffic(
    config: SimulationConfig, chosen: Chosen, sizes: Sequence[int], num_features: int
) -> dict[str, float]:
    """Bytes of the busiest party and of the coordinator; none for one client alone."""
    if len(sizes) < 2:
        return {}
    if isinstance(chosen, SumsChoice):
        rounds = len(chosen.objective.queries(chosen.rule.rounds))
        return _sums_traffic(chosen.cipher, rounds, num_features, len(sizes))
    figures = PublicFigures(rows_by_party=tuple(sizes), num_features=num_features)
    return plan_traffic(rows_plan(figures, config.wanted(), chosen))


def plan_traffic(plan: RunPlan) -> dict[str, float]:
    """The same for a plan; parties differ in how many data ciphertexts they have rows in alone."""
    if plan.protocol == SECURE_AGGREGATION:
        sums = only(GradientPlan, plan)
        return _sums_traffic(sums.cipher, len(sums.queries), sums.length, len(sums.members))
    if plan.kind not in ("rows", "model", "model-lffr"):
        return {}
    return _rows_traffic(only(RowsPlan, plan))


def _rows_traffic(plan: RowsPlan) -> dict[str, float]:
    params, parties, fresh = plan.ckks, len(plan.names), sum(plan.refreshes)
    key_rows = (params.num_towers + params.num_special_towers) * params.num_digits
    half, top, low, last = (
        rns.packed_size((0,) * towers, params.ring_dim)
        for towers in (key_rows, params.num_towers, REFRESH_TOWERS, DECRYPTION_TOWERS)
    )
    rotations = len(plan.rotations)
    # The ceremony; refreshes, c1 down and two shares up; the decryption.
    alike = (parties + 1) * top + (5 + rotations) * half + fresh * (2 * low + top) + 2 * last
    held = np.zeros(parties, int)
    if plan.gathered == "gradients":
        # The joint keys; points down, from the second on, and gradients up.
        points = plan.layout.num_parts * (plan.rounds - 1)
        alike += (2 + rotations) * half + points * top + 2 * (points + plan.layout.num_parts) * low
    else:  # rows travel
        layout = plan.layout
        held += [
            len(layout.ciphertexts_of(k)) + layout.num_side_ciphertexts for k in range(parties)
        ]
    by_party = alike + 2 * top * held
    return {"bytes_party": float(by_party.max()), "bytes_coordinator": float(by_party.sum())}


def _sums_traffic(
    cipher: AggregateParameters, rounds: int, length: int, parties: int
) -> dict[str, float]:
    each = _MASKED * cipher.ring_dim + rounds * (_VALUE * length + cipher.num_bytes(length))
    return {"bytes_party": float(each), "bytes_coordinator": float(parties * each)}


# -- all seeds at once ----------------------------------------------------------------------------


class Oracle:
    """Noisy mean gradients of all runs, of the last one without noise; keeps what it saw.

    largest_logit, largest_iterate: of every run. squares: by component, sums over all rounds of
    (all clients' noise / sigma)^2, of what the coalition of the first t cannot subtract likewise,
    and of the noise itself, shape (seeds,); drawn: how many values each sums up.
    """

    def __init__(
        self, cell: Cell, setting: Setting, x: Floats, y: Floats, rngs: Sequence[Any]
    ) -> None:
        self._cell, self._setting, self._x, self._y, self._rngs = cell, setting, x, y, rngs
        self._split = NoiseSplit(parties=cell.parties, colluders=cell.split_colluders)
        self._norms = np.linalg.norm(x, axis=1)
        self.largest_logit: Any = 0.0
        self.largest_iterate: Any = 0.0
        names = ("privacy_ratio", "left_ratio", "privacy_noise")
        self.squares, self.drawn = {name: np.zeros(len(rngs)) for name in names}, 0

    def gradients(self, t: int, weights: Floats, row_weights: Floats) -> Floats:
        """Shape (runs, d)."""
        total = np.zeros_like(weights)
        for start in range(0, len(self._x), _BLOCK):
            part = slice(start, start + _BLOCK)
            x = self._x[part]
            z = x @ weights.T
            self.largest_logit = np.maximum(self.largest_logit, np.abs(z).max(axis=0, initial=0.0))
            residual = self._setting.link(z) - self._y[part, None]
            if self._setting.clip is not None:
                lengths = np.abs(residual) * self._norms[part, None]
                shrink = self._setting.clip / np.maximum(lengths, 1e-300)
                residual = residual * np.minimum(1.0, shrink)
            total += (residual * row_weights[part, None]).T @ x
        self.note(weights)
        if sigma := float(self._setting.sigma[t]):
            total[:-1] += self._noise(sigma, weights.shape[1])
        return total

    def note(self, weights: Floats) -> None:
        """Iterates of all runs, shape (runs, d)."""
        norms = np.linalg.norm(weights, axis=1)
        self.largest_iterate = np.maximum(self.largest_iterate, norms)

    def _noise(self, sigma: float, dim: int) -> Floats:
        """The sum of every client's Gaussian share, shape (seeds, dim)."""
        std, coalition = self._split.share_std(sigma), self._cell.colluders
        noise, squares = np.zeros((len(self._rngs), dim)), self.squares
        for k, rng in enumerate(self._rngs):
            shares = std * rng.standard_normal((self._cell.parties, dim))
            honest = shares[coalition:].sum(axis=0)
            noise[k] = shares[:coalition].sum(axis=0) + honest
            squares["left_ratio"][k] += float(np.sum((honest / sigma) ** 2))
        squares["privacy_ratio"] += np.sum((noise / sigma) ** 2, axis=1)
        squares["privacy_noise"] += np.sum(noise**2, axis=1)
        self.drawn += dim
        return noise

    def values(self, weights: Floats, k: int) -> dict[str, float]:
        """By component, of seed k."""
        values = {
            "largest_iterate": float(self.largest_iterate[k]),
            "largest_logit": float(self.largest_logit[k]),
        }
        if self.drawn:
            values |= {n: float(np.sqrt(v[k] / self.drawn)) for n, v in self.squares.items()}
            values["sigma"] = self._setting.rms_sigma
            values["model_noise"] = float(np.sqrt(np.mean((weights[k] - weights[-1]) ** 2)))
        return values


def measure_twin(cell: Cell, source: Source, seeds: Sequence[int]) -> list[Measurement]:
    """One measurement per seed; a cell without a certified setting gives refusals."""
    pool = open_pool(source, cell.norm)
    rngs = [np.random.default_rng(cell.seed_words(seed)) for seed in seeds]
    # Who owns which rows changes neither a mean over all rows nor its noise.
    if cell.mode == "fixed" and (cell.split == "even" or cell.weights == "rows"):
        groups = np.array_split(np.arange(len(pool.labels)), cell.parties)
        return _batch(cell, source, pool, groups, seeds, rngs)
    return [
        found
        for seed, rng in zip(seeds, rngs, strict=True)
        for found in _batch(cell, source, pool, draw_groups(cell, pool, rng), [seed], [rng])
    ]


def _batch(
    cell: Cell,
    source: Source,
    pool: PreparedData,
    groups: Sequence[NDArray[np.intp]],
    seeds: Sequence[int],
    rngs: Sequence[np.random.Generator],
) -> list[Measurement]:
    sizes, order = tuple(map(len, groups)), np.concatenate(groups)
    config, x = source.config(cell), pool.rows[order]
    features = x.shape[1]
    try:
        setting, chosen = open_setting(config, sizes, features, pool.schema.norm_bound)
    except (PrivacyError, ParameterError) as error:
        return [Measurement(cell=cell, seed=seed, refusal=str(error)) for seed in seeds]
    oracle = Oracle(cell, setting, x, pool.labels[order], rngs)
    row_weights = np.repeat(setting.row_weights, sizes)
    weights = train_many(
        setting.rule,
        lambda t, w: oracle.gradients(t, w, row_weights),
        runs=len(seeds) + 1,
        features=features,
    )
    oracle.note(weights)
    scores = [score(w, pool.test.x, pool.test.y) for w in weights[:-1]]
    predicted = {**predictions(cell, setting), **setting_traffic(config, chosen, sizes, features)}
    facts = {"rows": sum(sizes), "smallest": min(sizes), **setting.facts}
    return [
        Measurement(
            cell=cell,
            seed=seed,
            values={**oracle.values(weights, k), **quality_of(source, s)},
            predicted=predicted,
            facts=facts,
        )
        for k, (seed, s) in enumerate(zip(seeds, scores, strict=True))
    ]


def quality_of(source: Source, scores: Mapping[str, float]) -> dict[str, float]:
    """A model's scores on the test rows, and what they are judged beside."""
    return {**{name: scores[name] for name in QUALITY}, **levels(source)}


def predictions(cell: Cell, setting: Setting) -> dict[str, float]:
    """Formulas and bounds of a cell."""
    if not setting.rms_sigma:
        return setting.bounds
    ratio = components.total_ratio(cell.parties, cell.split_colluders)
    left = components.left_ratio(cell.parties, cell.split_colluders, cell.colluders)
    noise = {"privacy_ratio": ratio, "privacy_noise": ratio * setting.rms_sigma}
    return {**noise, "left_ratio": left, **setting.bounds}
