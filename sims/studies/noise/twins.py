"""A cell in plaintext, all its seeds at once.

Every client draws its own noise share, and the shares are added up as the protocol adds them, so
that a wrong share shows. They are float64 Gaussians (`sims.many_twins`). One more run without
noise rides along, as the reference of `model_noise`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError, PrivacyError
from protocols.privacy.shares import NoiseSplit
from sims.many_twins import train_many
from sims.studies.noise import theory
from sims.studies.noise.grid import Cell
from sims.studies.noise.measurement import Measurement
from sims.studies.noise.settings import Setting, open_setting
from sims.studies.noise.source import Pool, RowNumbers, Source, draw_groups, open_pool
from sims.studies.noise.traffic import setting_traffic
from sims.twin import score

Floats = NDArray[np.float64]
_BLOCK = 512


class Shares:
    """Every client's Gaussian share of every round, for several seeds; keeps what it drew.

    total, left: sum of squares of all clients' noise over sigma, and of what the coalition of the
    first t cannot subtract, shape (seeds,).
    """

    def __init__(self, cell: Cell, setting: Setting, dim: int, rngs: Sequence[Any]) -> None:
        self._cell, self._sigma, self._dim, self._rngs = cell, setting.sigma, dim, rngs
        self._split = NoiseSplit(parties=cell.parties, colluders=cell.split_colluders)
        self.total, self.left = np.zeros(len(rngs)), np.zeros(len(rngs))
        self.absolute, self.count = np.zeros(len(rngs)), 0

    def draw(self, t: int) -> Floats:
        """Noise of round t, shape (seeds, dim)."""
        sigma = float(self._sigma[t])
        noise = np.zeros((len(self._rngs), self._dim))
        if not sigma:
            return noise
        std, coalition = self._split.share_std(sigma), self._cell.colluders
        for k, rng in enumerate(self._rngs):
            shares = std * rng.standard_normal((self._cell.parties, self._dim))
            honest = shares[coalition:].sum(axis=0)
            noise[k] = shares[:coalition].sum(axis=0) + honest
            self.left[k] += float(np.sum((honest / sigma) ** 2))
        self.total += np.sum((noise / sigma) ** 2, axis=1)
        self.absolute += np.sum(noise**2, axis=1)
        self.count += self._dim
        return noise


class Oracle:
    """Noisy mean gradients of all runs; the last run has no noise. Keeps the largest figures."""

    def __init__(
        self, setting: Setting, x: Floats, y: Floats, row_weights: Floats, shares: Shares
    ) -> None:
        self._setting, self._x, self._y = setting, x, y
        self._weights, self._shares = row_weights, shares
        self._norms = np.linalg.norm(x, axis=1)
        self.largest_logit: Any = 0.0
        self.largest_iterate: Any = 0.0

    def __call__(self, t: int, weights: Floats) -> Floats:
        """Shape (runs, d)."""
        total = np.zeros_like(weights)
        for start in range(0, len(self._x), _BLOCK):
            part = slice(start, start + _BLOCK)
            total += self._block(part, weights)
        norms = np.linalg.norm(weights, axis=1)
        self.largest_iterate = np.maximum(self.largest_iterate, norms)
        total[:-1] += self._shares.draw(t)
        return total

    def _block(self, part: slice, weights: Floats) -> Floats:
        x = self._x[part]
        z = x @ weights.T
        self.largest_logit = np.maximum(self.largest_logit, np.abs(z).max(axis=0, initial=0.0))
        residual = self._setting.link(z) - self._y[part, None]
        clip = self._setting.clip
        if clip is not None:
            lengths = np.abs(residual) * self._norms[part, None]
            residual = residual * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))
        gradient: Floats = (residual * self._weights[part, None]).T @ x
        return gradient


def measure_twin(cell: Cell, source: Source, seeds: Sequence[int]) -> list[Measurement]:
    """One measurement per seed; a cell without a certified setting gives refusals."""
    pool = open_pool(source, cell.norm)
    rngs = [np.random.default_rng(cell.seed_words(seed)) for seed in seeds]
    # Who owns which rows changes neither a mean over all rows nor its noise.
    alike = cell.mode == "fixed" and (cell.split == "even" or cell.weights == "rows")
    if alike:
        groups: list[RowNumbers] = np.array_split(np.arange(len(pool.y)), cell.parties)
        return _batch(cell, source, pool, groups, seeds, rngs)
    found = []
    for seed, rng in zip(seeds, rngs, strict=True):
        found += _batch(cell, source, pool, draw_groups(cell, pool, rng), [seed], [rng])
    return found


def _batch(
    cell: Cell,
    source: Source,
    pool: Pool,
    groups: Sequence[RowNumbers],
    seeds: Sequence[int],
    rngs: Sequence[np.random.Generator],
) -> list[Measurement]:
    sizes = tuple(map(len, groups))
    try:
        setting = open_setting(
            source.config(cell),
            rows_by_party=sizes,
            num_features=pool.x.shape[1],
            norm_bound=pool.schema.norm_bound,
        )
    except (PrivacyError, ParameterError) as error:
        return [Measurement(cell=cell, seed=seed, refusal=str(error)) for seed in seeds]
    order = np.concatenate(groups)
    shares = Shares(cell, setting, pool.x.shape[1], rngs)
    row_weights = np.repeat(setting.row_weights, sizes)
    oracle = Oracle(setting, pool.x[order], pool.y[order], row_weights, shares)
    runs = len(seeds) + 1
    weights = train_many(setting.rule, oracle, runs=runs, features=pool.x.shape[1])
    oracle.largest_iterate = np.maximum(oracle.largest_iterate, np.linalg.norm(weights, axis=1))
    facts = {"rows": sum(sizes), "smallest": min(sizes), **setting.facts}
    predicted = {
        **predictions(cell, setting),
        **setting_traffic(source.config(cell), setting.chosen, sizes, pool.x.shape[1]),
    }
    return [
        Measurement(
            cell=cell,
            seed=seed,
            values=_values(setting, shares, oracle, weights, k, pool),
            predicted=predicted,
            facts=facts,
        )
        for k, seed in enumerate(seeds)
    ]


def predictions(cell: Cell, setting: Setting) -> dict[str, float]:
    """Formulas and bounds of a cell."""
    found: dict[str, float] = {}
    sigma = float(np.sqrt(np.mean(setting.sigma**2)))
    if sigma:
        ratio = theory.total_ratio(cell.parties, cell.split_colluders)
        found["privacy_ratio"], found["privacy_noise"] = ratio, ratio * sigma
        found["left_ratio"] = theory.left_ratio(cell.parties, cell.split_colluders, cell.colluders)
    if setting.iterate_bound is not None:
        found["largest_iterate"] = setting.iterate_bound
    if setting.radius is not None:
        found["largest_logit"] = setting.radius
    return found


def _values(
    setting: Setting, shares: Shares, oracle: Oracle, weights: Floats, k: int, pool: Pool
) -> dict[str, float]:
    quality = score(weights[k], pool.test.x, pool.test.y)
    values = {
        "largest_iterate": float(oracle.largest_iterate[k]),
        "largest_logit": float(oracle.largest_logit[k]),
        "accuracy": quality.accuracy,
        "auc": quality.auc,
    }
    if shares.count:
        values |= {
            "sigma": float(np.sqrt(np.mean(setting.sigma**2))),
            "privacy_ratio": float(np.sqrt(shares.total[k] / shares.count)),
            "privacy_noise": float(np.sqrt(shares.absolute[k] / shares.count)),
            "left_ratio": float(np.sqrt(shares.left[k] / shares.count)),
            "model_noise": float(np.sqrt(np.mean((weights[k] - weights[-1]) ** 2))),
        }
    return values
