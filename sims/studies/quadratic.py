r"""Enhanced Nesterov by the quadratic gradient, encrypted, on small medical tables.

Question: does the encrypted run reach the accuracy and AUC of Chiang, "Privacy-Preserving Logistic
Regression Training with a Faster Gradient Variant", Table II (4 iterations, degree 5), and how does
it converge beside plain Nesterov?

    python -m sims.studies.quadratic --data edin.csv --data lbw.csv --label y \
        --folds 5 --parties 3 --iterations 4 --out DIR

1. k-fold cross-validation: rows are shuffled once, floor(rows / folds) of them per test fold; every
   fold is a whole encrypted run, compared with its plaintext twin.
2. Convergence of `nag` (step 1 / beta) and `quadratic-nag` on all rows: the twin's mean
   log-likelihood after every iteration, and encrypted runs of a few lengths T, because a run
   reveals its last model only. The interval of the sigmoid polynomial is a MEASURED choice: the
   least of INTERVALS that the twin's logits keep to.

Columns are scaled to [0, 1] by their extremes, as in the paper: the schema declares the range
[2 low - high, high], of which range scaling makes [-1, 1] and hence of [low, high] makes [0, 1].
The extremes come from the table, which is public here; a deployment takes public ones.

Writes runs.csv, results.json, table.txt and convergence.svg/png (`quadratic_output`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from protocols.approximation import Polynomial
from protocols.errors import ParameterError
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.calibrate.rows import choose_rows
from protocols.train import PlainGradient, train_plain
from protocols.updates.update import Update
from sims.config import SimulationConfig
from sims.console import refusals, say, stdout
from sims.figures import figures_of
from sims.prepare import PreparedData
from sims.result import Array, RunResult
from sims.simulation import Event, run
from sims.studies.quadratic_data import Table, prepared
from sims.twin import logistic_loss

UPDATES = ("nag", "quadratic-nag")
POINTS = (1, 2, 4, 8, 15, 30)
DEGREE, RADIUS = 5, 8.0
CURVE_DEGREE = 7
INTERVALS = (8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One encrypted run beside its twin.

    part: "fold 1" … or "all rows"; accuracy, auc: of the test rows; loss: mean logistic loss of the
    training rows [nats]; weight_gap: largest difference of a weight; seconds: of the coordinator,
    per iteration (median); cpu_seconds: of coordinator AND all parties, per iteration (median);
    total_seconds, total_cpu_seconds: of the whole run, keys included.
    """

    data: str
    part: str
    update: str
    iterations: int
    degree: int
    radius: float
    security_bits: float
    accuracy: float
    auc: float
    loss: float
    twin_accuracy: float
    twin_auc: float
    twin_loss: float
    weight_gap: float
    largest_logit: float
    seconds: float
    cpu_seconds: float
    total_seconds: float
    total_cpu_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """The twin's mean log-likelihood of the training rows after 1 … T iterations [nats]."""

    data: str
    update: str
    radius: float
    likelihood: Array

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "likelihood": self.likelihood.tolist()}


def encrypted_run(table: Table, part: str, data: PreparedData, config: SimulationConfig) -> Run:
    """A whole session with these shards; parties and coordinator share this process."""
    laps: list[float] = []

    def note(event: Event) -> None:
        if event.phase == "train":
            laps.append(time.process_time())

    began = time.process_time()
    result = run(config, data, config.seed or 0, note)
    if not isinstance(result, RunResult):
        raise AssertionError("a classification came back as something else")
    return _run(table, part, data, config, result, np.diff(laps), time.process_time() - began)


def _run(
    table: Table,
    part: str,
    data: PreparedData,
    config: SimulationConfig,
    result: RunResult,
    laps: Array,
    cpu: float,
) -> Run:
    last = result.iterations[-1]
    return Run(
        data=table.name,
        part=part,
        update=config.update,
        iterations=last.iteration,
        degree=config.degree or 0,
        radius=config.radius or 0.0,
        security_bits=result.plan.security_bits,
        accuracy=result.scores.accuracy,
        auc=result.scores.auc,
        loss=logistic_loss(result.weights, data.rows, data.labels),
        twin_accuracy=result.twin.accuracy,
        twin_auc=result.twin.auc,
        twin_loss=logistic_loss(result.twin_weights, data.rows, data.labels),
        weight_gap=result.max_abs_diff_to_twin,
        largest_logit=last.largest_logit,
        seconds=float(np.median(result.costs.iteration_seconds)),
        cpu_seconds=float(np.median(laps)),
        total_seconds=result.total_seconds,
        total_cpu_seconds=cpu,
    )


def cross_validate(table: Table, folds: int, config: SimulationConfig) -> Iterator[Run]:
    """One encrypted run per fold."""
    if not 2 <= folds <= len(table.frame):
        raise ParameterError(f"folds={folds} is outside 2 .. {len(table.frame)}, the rows")
    order = np.random.default_rng(config.seed).permutation(len(table.frame))
    for k in range(folds):
        train, test = table.fold(order, folds, k)
        yield encrypted_run(table, f"fold {k + 1}", prepared(table, train, test, config), config)


def curve_and_config(
    table: Table, update: str, rounds: int, config: SimulationConfig
) -> tuple[Curve, SimulationConfig]:
    """The twin's curve on the least interval that its logits keep to, and that setting.

    Raises:
        ParameterError: the logits leave every interval of INTERVALS.
    """
    data = prepared(table, table.frame, table.frame, config)
    for radius in INTERVALS:
        asked = replace(config, update=update, rounds=rounds, degree=CURVE_DEGREE, radius=radius)
        likelihood, largest = _course(data, asked)
        if largest <= radius:
            return Curve(
                data=table.name, update=update, radius=radius, likelihood=likelihood
            ), asked
    raise ParameterError(
        f"{table.name}, {update}: logits leave [-{INTERVALS[-1]:g}, {INTERVALS[-1]:g}] within "
        f"{rounds} iterations: take fewer"
    )


def _course(data: PreparedData, config: SimulationConfig) -> tuple[Array, float]:
    """Log-likelihood of the model that T = 1, 2, … iterations release, and the largest logit.

    An accelerated rule's intermediate state is scaled, hence a run for each T.
    """
    x, y = data.rows, data.labels
    figures = figures_of(data.schema, (shard.rows for shard in data.shards.values()))
    setting = choose_rows(figures, Wanted.of(config))
    link, likelihood, largest = setting.link.polynomial, [], 0.0
    for rounds in range(1, setting.rule.rounds + 1):
        rule: Any = replace(setting.rule, rounds=rounds)  # type: ignore[type-var]
        weights, seen = _trained(rule, x, y, link)
        likelihood.append(-logistic_loss(weights, x, y))
        largest = max(largest, seen)
    return np.array(likelihood), largest


def _trained(rule: Update, x: Array, y: Array, link: Polynomial) -> tuple[Array, float]:
    inverse = rule.curvature.preconditioner(x) if rule.curvature else 1.0
    gradient = PlainGradient(x, y, np.zeros((rule.rounds, x.shape[1])), link, inverse)
    weights = train_plain(rule, gradient, x.shape[1])
    return weights, max(gradient.largest, float(np.abs(x @ weights).max()))


def convergence(
    table: Table, points: Sequence[int], config: SimulationConfig, keep: Callable[[Run], object]
) -> Iterator[Curve]:
    """A curve per update rule; encrypted runs of every length in `points` go to `keep`."""
    for update in UPDATES:
        curve, asked = curve_and_config(table, update, max(points), config)
        yield curve
        data = prepared(table, table.frame, table.frame, config)
        for rounds in points:
            keep(encrypted_run(table, "all rows", data, replace(asked, rounds=rounds)))


def main(
    data: Annotated[list[Path], typer.Option(help="CSV file; may be repeated.")],
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")],
    label: Annotated[str, typer.Option(help="Column to predict, 0 or 1.")] = "y",
    folds: Annotated[int, typer.Option(min=2, help="Parts of the cross-validation.")] = 5,
    parties: Annotated[int, typer.Option(min=2, help="How many data owners.")] = 3,
    iterations: Annotated[int, typer.Option(min=1, help="Of the cross-validation.")] = 4,
    points: Annotated[str, typer.Option(help="Lengths T of encrypted runs; empty: none.")] = (
        ",".join(map(str, POINTS))
    ),
    seed: Annotated[int, typer.Option(min=1, help="Of the shuffle and the split.")] = 1,
    profile: Annotated[str, typer.Option(help="secure, or fast-insecure.")] = "secure",
) -> None:
    """Cross-validation and convergence of enhanced Nesterov, encrypted."""
    from sims.studies.quadratic_output import table_lines, write

    with refusals() as console:
        config = SimulationConfig(
            parties=parties,
            update="quadratic-nag",
            rounds=iterations,
            degree=DEGREE,
            radius=RADIUS,
            seed=seed,
            profile=profile,
        )
        tables = [Table.load(path, label) for path in data]
        lengths = sorted({int(text) for text in points.split(",") if text.strip()})
        runs: list[Run] = []
        curves: list[Curve] = []

        def keep(found: Run) -> None:
            runs.append(found)
            say(console, f"{found.data} {found.update} {found.part} T={found.iterations}")
            write(out, runs, curves)

        for table in tables:
            for found in cross_validate(table, folds, config):
                keep(found)
        for table in tables if lengths else ():
            for curve in convergence(table, lengths, config, keep):
                curves.append(curve)
        write(out, runs, curves)
        for line in table_lines(runs):
            say(stdout(), line)


if __name__ == "__main__":
    typer.run(main)
