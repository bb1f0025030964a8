"""Models on one data set, judged on held-out rows: the product's, a trusted curator's, references.

Each is trained and tested once for every seed, on the rows that a simulation with that seed has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from scipy.special import logit

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import figures_of
from ciphercohort.results.result import Figures
from parties.reader.schema import Schema
from protocols.errors import PrivacyError
from protocols.exchange.messages import new_signing_key, public_bytes
from protocols.models.registry import model_named
from protocols.plan.published import published
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.sums.plan import GradientPlan
from sims.lab.baselines import Array, DpSgd, dp_sgd
from sims.lab.studies import objective_perturbation
from sims.prepare import PreparedData, prepare
from sims.simulation import party_specs
from sims.twin import fit_optimum
from sims.twins import moment_in_plain, twin_of

PRIVATE, OBJECTIVE, DESCENT = "private", "objective perturbation", "DP-SGD"
OPTIMUM, CLIPPED, BASE = "optimum", "optimum, clipped rows", "base rate"
RIDGES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Lambda of objective perturbation, of the sum over rows."""
ROUNDS, RATES, CLIPS = (10, 50, 200), (1.0, 4.0, 10.0), (1.0, 0.3)
"""Of DP-SGD, with all rows in every round."""
HALVINGS = 20
"""Of the held-out rows, to choose thresholds and to judge them."""
LARGE, TUNING = 5_000, 3
"""Rows from which on baselines are tuned on so many seeds."""


# -- one seed's rows -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Task:
    """A data set; config: of every run on it, but for epsilon, iterations and seed."""

    name: str
    config: SimulationConfig

    @classmethod
    def of(cls, data: Path, schemas: Path, **options: Any) -> Task:
        """See the module for what goes with a file; options: of the configuration."""
        schema, test = schemas / f"{data.stem}.json", data.with_name(f"{data.stem}_test.csv")
        config = SimulationConfig(
            data=str(data),
            label=Schema.load(schema).label.name,
            schema=schema,
            test=test if test.exists() else None,
            **options,
        )
        return cls(name=data.stem, config=config)

    def split(self, seed: int) -> Split:
        """The rows that a simulation with this seed trains and tests on."""
        return Split(seed=seed, data=prepare(self.config, np.random.default_rng(seed)))

    def unclipped(self, seed: int) -> Split:
        """The same rows without the schema's bound on their norm."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "unclipped.json"
            replace(Schema.load(str(self.config.schema)), row_norm=None).save(path)
            return replace(self, config=replace(self.config, schema=path)).split(seed)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Encoded rows of a seed."""

    seed: int
    data: PreparedData

    def judged(self, weights: Array) -> Figures:
        """Of scores x w on the held-out rows."""
        return judged(self.data.test.x, self.data.test.y, weights)


def judged(x: Array, y: Array, weights: Array) -> Figures:
    """The product's figures, `threshold_accuracy` and `crossed_accuracy`."""
    found, z = model_named("logistic").metrics(weights, x, y), x @ weights
    return Figures(
        **found,
        threshold_accuracy=threshold_accuracy(z, y),
        crossed_accuracy=crossed_accuracy(z, y),
    )


def best_threshold(z: Array, y: Array) -> float:
    """Of all thresholds on the scores that are most often right, the one nearest to 0."""
    order = np.argsort(z, kind="stable")
    ordered, positive = z[order], y[order] > 0.5
    low, high = np.concatenate([[-np.inf], ordered]), np.concatenate([ordered, [np.inf]])
    right = np.concatenate([[0], np.cumsum(~positive) - np.cumsum(positive)])
    # a threshold lies between two different scores, or beyond all of them
    best = low < high
    best &= right == right[best].max()
    low, high = low[best], high[best]
    cuts = np.where((low <= 0) & (high > 0), 0.0, low / 2 + high / 2)
    return float(cuts[np.abs(cuts).argmin()])


def threshold_accuracy(z: Array, y: Array) -> float:
    """The best accuracy that any threshold on the scores has.

    On few rows it is optimistic: the threshold is chosen on the rows that it is judged on.
    """
    return float(np.mean((z > best_threshold(z, y)) == (y > 0.5)))


def crossed_accuracy(z: Array, y: Array) -> float:
    """The same with a threshold chosen on one half of the rows and judged on the other.

    Mean of HALVINGS random halvings, both ways: what the ranking allows to whoever has half of
    these rows to choose by.
    """
    rng, middle = np.random.default_rng(0), len(y) // 2
    halvings = [np.split(rng.permutation(len(y)), [middle]) for _ in range(HALVINGS)]
    return float(
        np.mean(
            [
                np.mean((z[judge] > best_threshold(z[choose], y[choose])) == (y[judge] > 0.5))
                for pair in halvings
                for choose, judge in (pair, pair[::-1])
            ]
        )
    )


# -- who trains ------------------------------------------------------------------------------------


class PrivateRule:
    """The product: from public figures to a plan, from a plan to its twin."""

    def __init__(self, config: SimulationConfig) -> None:
        self._config = config
        self._found: dict[tuple[int, ...], Calibration] = {}
        self._last: Any = None

    def weights(self, split: Split) -> Array:
        """Of the published model, shape (d,), on encoded rows: all that a run takes happens here.

        Raises:
            PrivacyError: nothing is certified.
        """
        data, config = split.data, replace(self._config, seed=split.seed)
        figures = figures_of(data.schema, (shard.rows for shard in data.shards.values()))
        wanted = config.wanted()
        if figures.rows_by_party not in self._found:
            self._found[figures.rows_by_party] = calibrate(figures, wanted)
        found = self._found[figures.rows_by_party]
        specs = party_specs(config, data.shards, split.seed, public_bytes(new_signing_key()))
        members = tuple(
            Member(name=name, rows=s.shard.rows, verify_key=s.verify_key, commitment="0" * 64)
            for name, s in specs.items()
        )
        if found.first is not None:
            moment = moment_in_plain(cast(GradientPlan, found.first_plan("0" * 32, members)), specs)
            found = calibrate(figures, found.wanted, moment)
        self._last = found
        plan = found.plan("1" * 32, members)
        return published(plan, twin_of(plan, data, specs).weights, data.schema.bias)[0]

    def facts(self) -> dict[str, Any]:
        """Of the plan that was made last."""
        plan, certificate = self._last.template, self._last.certificate
        stated = {"update": plan.to_dict().get("update"), "iterations": plan.rounds}
        if certificate is not None:
            stated["figures"] = {k: float(v) for k, v in certificate.figures.items()}
        return stated


Trainer = Callable[..., Array]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A setting of a baseline.

    facts: its settings; unit: whether rows are divided by their norms; train: from rows of norm at
    most 1, labels and noise to weights.
    """

    facts: Mapping[str, Any]
    unit: bool
    train: Trainer

    def judged(self, split: Split) -> Figures:
        """On the held-out rows, encoded as the training rows are."""
        data, test = split.data, split.data.test
        scale: Callable[[Array], Array] = unit_rows if self.unit else lambda x: x
        w = self.train(scale(data.rows), data.labels, rng=np.random.default_rng(split.seed))
        return judged(scale(test.x), test.y, w)


def unit_rows(x: Array) -> Array:
    """Rows divided by their norms, which a bias keeps above 0."""
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def objective_candidates(epsilon: float, delta: float) -> Iterator[Candidate]:
    """Every ridge that epsilon allows."""
    for ridge, unit in product(RIDGES, (False, True)):
        std = objective_perturbation.noise_std(ridge, epsilon=epsilon, delta=delta)
        if np.isfinite(std):
            yield Candidate(
                facts={"ridge": ridge, "unit_rows": unit},
                unit=unit,
                train=partial(objective_perturbation.train, ridge=ridge, std=std),
            )


def descent_candidates(epsilon: float, delta: float) -> Iterator[Candidate]:
    """Rounds, rates, clips: all rows in every round."""
    for rounds, rate, clip, unit in product(ROUNDS, RATES, CLIPS, (False, True)):
        plan = DpSgd(loss="logistic", lam=0.0, batches=1, rounds=rounds, clip=clip, rate=rate)
        std = plan.noise_std(epsilon=epsilon, delta=delta)
        yield Candidate(
            facts={"rounds": rounds, "rate": rate, "clip": clip, "unit_rows": unit},
            unit=unit,
            train=partial(_descend, plan, std),
        )


def _descend(plan: DpSgd, std: float, x: Array, y: Array, rng: np.random.Generator) -> Array:
    return dp_sgd(plan, x, 2 * y - 1, std, rng)


BASELINES: Mapping[str, Callable[[float, float], Iterable[Candidate]]] = {
    OBJECTIVE: objective_candidates,
    DESCENT: descent_candidates,
}


# -- what comes of it ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Found:
    """A model on a data set.

    epsilon: None without privacy; iterations: T that was asked for, None: the product's choice;
    mean, std: of figures over seeds, NaN left out; best_accuracy: mean of any setting of a
    baseline; facts: the setting; refusal: why there is no model, then there are no figures.
    """

    data: str
    rows: int
    features: int
    seeds: int
    model: str
    epsilon: float | None = None
    iterations: int | None = None
    mean: dict[str, float] = field(default_factory=dict)
    std: dict[str, float] = field(default_factory=dict)
    best_accuracy: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""

    @property
    def title(self) -> str:
        """In a table."""
        return self.model if self.iterations is None else f"{self.model}, T = {self.iterations}"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A data set's splits, as many as seeds."""

    task: Task
    splits: tuple[Split, ...]

    @classmethod
    def of(cls, task: Task, seeds: int) -> Bench:
        """Read the data.

        Raises:
            SchemaError, DataError: as `prepare`.
        """
        return cls(task=task, splits=tuple(task.split(seed) for seed in range(seeds)))

    def found(self, model: str, figures: Sequence[Figures] = (), **fields: Any) -> Found:
        """Means over the splits."""
        rows, features = self.splits[0].data.rows.shape
        keys = figures[0] if figures else {}
        return Found(
            data=self.task.name,
            rows=rows,
            features=features,
            seeds=len(self.splits),
            model=model,
            mean={key: over(figures, key) for key in keys},
            std={key: over(figures, key, np.std) for key in keys},
            **fields,
        )

    def references(self) -> Iterator[Found]:
        """Optimum of unclipped and of clipped rows, base rate of the training rows."""
        wide, clipped, base = [], [], []
        for split in self.splits:
            data, test = split.data, split.data.test
            other = self.task.unclipped(split.seed)
            wide.append(other.judged(fit_optimum(other.data.rows, other.data.labels)))
            clipped.append(split.judged(fit_optimum(data.rows, data.labels)))
            constant = np.array([logit(data.labels.mean())])
            base.append(judged(np.ones((len(test.y), 1)), test.y, constant))
        yield self.found(OPTIMUM, wide)
        yield self.found(CLIPPED, clipped)
        yield self.found(BASE, base)

    def private(self, epsilon: float, iterations: int | None) -> Found:
        """The product's model, or why there is none."""
        rule = PrivateRule(replace(self.task.config, epsilon=epsilon, rounds=iterations))
        asked: dict[str, Any] = {"epsilon": epsilon, "iterations": iterations}
        try:
            figures = [split.judged(rule.weights(split)) for split in self.splits]
        except PrivacyError as error:
            return self.found(PRIVATE, refusal=str(error), **asked)
        return self.found(PRIVATE, figures, facts=rule.facts(), **asked)

    def baseline(self, epsilon: float, model: str) -> Found:
        """The setting of a baseline with the least mean log loss."""
        large = len(self.splits[0].data.rows) >= LARGE
        tried = self.splits[:TUNING] if large else self.splits
        results = [
            (candidate, [candidate.judged(split) for split in tried])
            for candidate in BASELINES[model](epsilon, self.task.config.delta)
        ]
        if not results:
            return self.found(model, epsilon=epsilon, refusal="no ridge is enough for this epsilon")
        chosen, figures = min(results, key=lambda each: over(each[1], "log_loss"))
        figures = [*figures, *(chosen.judged(split) for split in self.splits[len(tried) :])]
        best = max(over(each, "accuracy") for each in (figures, *(f for _, f in results)))
        facts = dict(chosen.facts)
        return self.found(model, figures, epsilon=epsilon, best_accuracy=best, facts=facts)


def over(figures: Sequence[Figures], key: str, of: Callable[[Array], Any] = np.mean) -> float:
    """Of a figure over seeds, NaN left out."""
    values = np.array([f[key] for f in figures], dtype=np.float64)
    values = values[~np.isnan(values)]
    return float(of(values)) if values.size else float("nan")
