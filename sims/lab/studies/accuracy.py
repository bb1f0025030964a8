r"""Accuracy of certified settings, over seeds, by plaintext twins.

Question: how accurate is the released model at a given (epsilon, delta) with parameters that a
certificate covers, beside the figures of the source paper (arXiv:2605.27782, Table 4)?

    python -m sims.lab.studies.accuracy --data adult.csv --test adult_test.csv --label income \
        --schema docs/schemas/adult.json --seeds 100 --epsilon 1 --delta 1e-5 --parties 10

The setting comes from public numbers alone (rows, features, norm bound); no run is used to tune it.
Where no test file is given, the seeds are shared out among `--splits` random hold-outs. Twins are
those of `cohort study accuracy` (`noise.twins`): the float64 Gaussian noise of ALL parties.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ciphercohort.cli import options
from ciphercohort.cli.console import refusals, say, stdout
from ciphercohort.job.config import DEFAULT_DELTA, DEFAULT_EPSILON
from ciphercohort.results.documents import to_json
from protocols.errors import PrivacyError
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.calibrate.rows import choose_rows
from sims.lab.studies.noise.grid import Cell
from sims.lab.studies.noise.source import Source, open_pool
from sims.lab.studies.noise.twins import measure_twin

# arXiv:2605.27782, Table 4, epsilon = 1, delta = 1e-5: accuracy and area under ROC.
PAPER = {
    "adult": {"clipping": (0.7947, 0.8692), "barrier": (0.8050, 0.8750)},
    "credit": {"clipping": (0.7795, 0.6411), "barrier": (0.7828, 0.6501)},
}
UPDATES = ("barrier", "gd")


def run_study(cell: Cell, source: Source, *, seeds: int, splits: int) -> dict[str, Any]:
    """Scores of `seeds` >= 2 models, and the setting behind them, JSON-ready.

    baseline: accuracy of the more frequent label, mean over splits; largest_norm: of any iterate;
    everything about the setting: of the first split.

    Raises:
        PrivacyError: no certified setting exists. DataError, SchemaError: as `prepare`.
    """
    groups = np.array_split(np.arange(seeds), 1 if source.test is not None else splits)
    found, baselines = [], []
    for number, group in enumerate(group for group in groups if group.size):
        held = source.held_out_by(number)
        found += measure_twin(cell, held, group.tolist())
        if found[-1].refusal:
            raise PrivacyError(found[-1].refusal)
        positive = float(open_pool(held, None).test.y.mean())
        baselines.append(max(positive, 1 - positive))
    scores = {name: [m.values[name] for m in found] for name in ("accuracy", "auc")}
    shape: dict[str, Any] = {"mean": np.mean, "std": partial(np.std, ddof=1)}
    return {
        "seeds": len(found),
        **{f"{n}_{s}": float(f(values)) for n, values in scores.items() for s, f in shape.items()},
        "baseline": float(np.mean(baselines)),
        "largest_norm": max(m.values["largest_iterate"] for m in found),
        **_setting(cell, source.held_out_by(0)),
    }


def _setting(cell: Cell, source: Source) -> dict[str, Any]:
    pool = open_pool(source, None)
    rows, features = pool.rows.shape
    figures = PublicFigures.even(
        rows=rows,
        features=features - 1,
        parties=cell.parties,
        norm_bound=pool.schema.norm_bound,
    )
    certificate = choose_rows(figures, source.config(cell).wanted()).certificate
    if certificate is None:  # nag and runs without noise never come here with epsilon
        raise AssertionError("a private setting came without a certificate")
    s, stated = certificate.setting, certificate.figures
    return {
        "radius": float(stated["R"]),
        "rows": rows,
        "features": features,
        "method": certificate.method,
        "rounds": int(s.rounds),
        "learning_rate": float(s.learning_rate),
        "lam": float(s.lam),
        "degree": int(s.sigmoid.polynomial.degree),
        "sigma": float(s.sigma),
        "sensitivity": float(stated["sensitivity"]),
        "binding": certificate.binding.name,
    }


def table_lines(name: str, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table, for people."""
    rows, features = found[0]["rows"], found[0]["features"]
    yield f"{name}: {rows:,} training rows, {features} features with the bias"
    yield "                     accuracy            AUC"
    for f in found:
        yield (
            f"{f['method']:<18} {f['accuracy_mean']:.4f} +- {f['accuracy_std']:.4f}  "
            f"{f['auc_mean']:.4f} +- {f['auc_std']:.4f}   {f['seeds']} seeds"
        )
        yield (
            f"  T={f['rounds']} eta={f['learning_rate']:.4g} lambda={f['lam']:.4g} "
            f"degree={f['degree']} "
            f"sigma={f['sigma']:.4g} R={f['radius']:.4g} (largest |w| {f['largest_norm']:.4g}) "
            f"binding={f['binding']}"
        )
    for method, (accuracy, auc) in PAPER.get(name, {}).items():
        yield f"{'paper, ' + method:<18} {accuracy:.4f}            {auc:.4f}"
    yield f"{'always one label':<18} {found[0]['baseline']:.4f}"


def main(
    data: Annotated[Path, typer.Option(help="Table (.csv, .parquet, …).")],
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
    update: Annotated[list[str] | None, options.names(help="barrier, gd (default: both).")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Mean and std of accuracy and AUC at certified parameters."""
    with refusals() as console:
        files: dict[str, Any] = {"data": data, "schema": schema, "test": test}
        files = {name: str(path) if path else None for name, path in files.items()}
        source = Source(**files, label=label, exclude=tuple(exclude or ()))
        if schema is None:
            say(console, "the schema is inferred from the data: not for a deployment", "yellow")
        base: dict[str, Any] = {"parties": parties, "coalition": str(colluders)}
        base |= {"epsilon": epsilon, "delta": DEFAULT_DELTA if delta is None else delta}
        cells = [Cell(update=name, **base) for name in update or UPDATES]
        found = [run_study(cell, source, seeds=seeds, splits=splits) for cell in cells]
        if as_json:
            sys.stdout.write(to_json(found, indent=2))
            return
        for line in table_lines(data.stem, found):
            say(stdout(), line)


if __name__ == "__main__":
    typer.run(main)
