r"""Accuracy of certified settings, over seeds, by plaintext twins.

Question: how accurate is the released model at a given (epsilon, delta) with parameters that a
certificate covers, beside the figures of the source paper (arXiv:2605.27782, Table 4)?

    python -m sims.studies.accuracy --data adult.csv --test adult_test.csv --label income \
        --schema docs/schemas/adult.json --seeds 100 --epsilon 1 --delta 1e-5 --parties 10

The setting comes from public numbers alone (rows, features, norm bound); no run is used to tune it.
Where no test file is given, the seeds are shared out among `--splits` random hold-outs. The noise
is float64 Gaussian (`sims.many_twins`) of the total std of ALL parties.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from protocols.approximation import Polynomial
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.calibrate.rows import choose_rows
from protocols.privacy.certificate import Certificate
from protocols.privacy.shares import NoiseSplit
from sims import cli_options as options
from sims.config import DEFAULT_DELTA, DEFAULT_EPSILON, SimulationConfig
from sims.console import refusals, say, stdout
from sims.documents import to_json
from sims.figures import figures_of
from sims.many_twins import Floats, train_many
from sims.prepare import prepare
from sims.twin import score

# arXiv:2605.27782, Table 4, epsilon = 1, delta = 1e-5: accuracy and area under ROC.
PAPER = {
    "adult": {"clipping": (0.7947, 0.8692), "barrier": (0.8050, 0.8750)},
    "credit": {"clipping": (0.7795, 0.6411), "barrier": (0.7828, 0.6501)},
}
_BLOCK = 2048


@dataclass(frozen=True, kw_only=True)
class Study:
    """Scores over seeds, and the setting behind them.

    accuracy, auc: float64 arrays, shape (seeds,). baseline: accuracy of the more frequent label,
    mean over splits. largest_norm: of any released weights. certificate: of the first split.
    """

    accuracy: Floats
    auc: Floats
    baseline: float
    largest_norm: float
    rows: int
    features: int
    certificate: Certificate

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the single scores."""
        s, figures = self.certificate.setting, self.certificate.figures
        return {
            "seeds": int(self.accuracy.size),
            "accuracy_mean": float(self.accuracy.mean()),
            "accuracy_std": float(self.accuracy.std(ddof=1)),
            "auc_mean": float(self.auc.mean()),
            "auc_std": float(self.auc.std(ddof=1)),
            "baseline": self.baseline,
            "largest_norm": self.largest_norm,
            "radius": float(figures["R"]),
            "rows": self.rows,
            "features": self.features,
            "method": self.certificate.method,
            "rounds": int(s.rounds),
            "eta": float(s.eta),
            "lam": float(s.lam),
            "degree": int(s.sigmoid.polynomial.degree),
            "sigma": float(s.sigma),
            "sensitivity": float(figures["sensitivity"]),
            "binding": self.certificate.binding.name,
        }


def run_study(config: SimulationConfig, *, seeds: int, splits: int, base_seed: int = 0) -> Study:
    """Train and score `seeds` >= 2 models; see the module's docstring.

    Raises:
        PrivacyError: no certified setting exists. DataError, SchemaError: as `prepare`.
    """
    groups = np.array_split(np.arange(seeds), 1 if config.test is not None else splits)
    accuracy, auc, baselines, norms = [], [], [], []
    first: tuple[int, int, Certificate] | None = None
    for number, group in enumerate(group for group in groups if group.size):
        rng = np.random.default_rng([base_seed, number])
        data = prepare(config, rng)
        rows, labels = data.rows, data.labels
        figures = figures_of(data.schema, (shard.rows for shard in data.shards.values()))
        chosen = choose_rows(figures, Wanted.of(config))
        certificate = chosen.certificate
        if certificate is None:  # nag and runs without noise never come here with epsilon
            raise AssertionError("a private setting came without a certificate")
        first = first or (len(rows), rows.shape[1], certificate)
        split = NoiseSplit(parties=len(data.shards), colluders=config.colluders)
        oracle = _Oracle(
            rows=rows,
            labels=labels,
            link=chosen.link.polynomial,
            std=split.total_std(certificate.setting.sigma),
            rng=rng,
        )
        found = train_many(chosen.rule, oracle, runs=group.size, features=rows.shape[1])
        for weights in found:
            quality = score(weights, data.test.x, data.test.y)
            accuracy.append(quality.accuracy)
            auc.append(quality.auc)
            norms.append(float(np.linalg.norm(weights)))
        positive = float(data.test.y.mean())
        baselines.append(max(positive, 1 - positive))
    if first is None:
        raise AssertionError("no seeds")
    return Study(
        accuracy=np.array(accuracy),
        auc=np.array(auc),
        baseline=float(np.mean(baselines)),
        largest_norm=max(norms),
        rows=first[0],
        features=first[1],
        certificate=first[2],
    )


@dataclass(frozen=True, kw_only=True)
class _Oracle:
    """Noisy mean gradients of all seeds at once, in blocks of rows that fit the cache."""

    rows: Floats
    labels: Floats
    link: Polynomial
    std: float
    rng: np.random.Generator

    def __call__(self, t: int, weights: Floats) -> Floats:
        """Mean gradients, shape (seeds, d)."""
        total = np.zeros_like(weights)
        for start in range(0, len(self.rows), _BLOCK):
            x = self.rows[start : start + _BLOCK]
            residual = self.link(x @ weights.T) - self.labels[start : start + _BLOCK, None]
            total += residual.T @ x
        return total / len(self.rows) + self.std * self.rng.standard_normal(weights.shape)


def _lines(name: str, found: Sequence[Study]) -> Iterator[str]:
    """The table, for people."""
    yield f"{name}: {found[0].rows:,} training rows, {found[0].features} features with the bias"
    yield "                     accuracy            AUC"
    for study in found:
        f = study.to_dict()
        yield (
            f"{f['method']:<18} {f['accuracy_mean']:.4f} +- {f['accuracy_std']:.4f}  "
            f"{f['auc_mean']:.4f} +- {f['auc_std']:.4f}   {f['seeds']} seeds"
        )
        yield (
            f"  T={f['rounds']} eta={f['eta']:.4g} lambda={f['lam']:.4g} degree={f['degree']} "
            f"sigma={f['sigma']:.4g} R={f['radius']:.4g} (largest |w| {f['largest_norm']:.4g}) "
            f"binding={f['binding']}"
        )
    for method, (accuracy, auc) in PAPER.get(name, {}).items():
        yield f"{'paper, ' + method:<18} {accuracy:.4f}            {auc:.4f}"
    yield f"{'always one label':<18} {found[0].baseline:.4f}"


def main(
    data: Annotated[Path, typer.Option(help="CSV or Parquet file.")],
    label: Annotated[str, typer.Option(help="Column to predict.")],
    test: options.TestFile = None,
    schema: options.SchemaFile = None,
    exclude: options.Exclude = None,
    seeds: Annotated[int, typer.Option(min=2, help="Models to train.")] = 100,
    splits: Annotated[int, typer.Option(min=1, help="Hold-outs that share the seeds.")] = 10,
    epsilon: options.Epsilon = DEFAULT_EPSILON,
    delta: options.Delta = DEFAULT_DELTA,
    parties: Annotated[int, typer.Option(help="How many data owners.")] = 10,
    colluders: Annotated[int, typer.Option(help="Parties that may pool what they know.")] = 0,
    update: Annotated[list[str] | None, typer.Option(help="barrier, gd; default both.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Mean and std of accuracy and AUC at certified parameters."""
    with refusals() as console:
        config = SimulationConfig(
            data=data,
            label=label,
            test=test,
            schema=schema,
            exclude=tuple(exclude or ()),
            parties=parties,
            colluders=colluders,
            epsilon=epsilon,
            delta=DEFAULT_DELTA if delta is None else delta,
        )
        if schema is None:
            say(console, "the schema is inferred from the data: not for a deployment", "yellow")
        found = [
            run_study(replace(config, update=name), seeds=seeds, splits=splits)
            for name in update or ("barrier", "gd")
        ]
        if as_json:
            sys.stdout.write(to_json([study.to_dict() for study in found], indent=2))
            return
        for line in _lines(data.stem, found):
            say(stdout(), line)


if __name__ == "__main__":
    typer.run(main)
