"""Do default runs without privacy end at the maximum likelihood, and how far short is training?

    python -m sims.lab.studies.maximum --data-folder data [--data lbw] [--model linear]
        [--protocol encrypted-model] [--profile fast-insecure]

Three parties, every row trained on, whatever else is not said by default. Coefficients are compared
with those of statsmodels' Logit and OLS on the pooled table [its standard errors], standard errors
relatively. *As trained* is the model before the last step on exact sums: mean log loss above the
least of the rows as they are encoded for training, or R^2 below that of their least squares.

Tables: see `sims.lab.papers.data`; linear models have one of their columns as the target. `made` is
100,000 rows of 20 normal columns that correlate by a half. statsmodels comes with the extra `test`.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from ciphercohort import simulate
from ciphercohort.cli import options
from ciphercohort.cli.console import refusals
from ciphercohort.results.documents import to_json
from ciphercohort.results.result import RunResult, targets_of
from parties.reader.shard import encode_shard
from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS
from sims.lab.papers.data import CREDIT, EDIN, FOLDER, LBW, PCS

Array = NDArray[np.float64]
LABELS, MODELS, MADE = {"logistic": "label", "linear": "target"}, ("logistic", "linear"), "made"
TABLES = {
    "lbw": (LBW, "x2"),
    "pcs": (PCS, "x7"),
    "edin": (EDIN, "x1"),
    "credit": (CREDIT, "LIMIT_BAL"),
}
"""Of files, and the column that a linear model predicts."""
MADE_ROWS, MADE_COLUMNS = 100_000, 20
FIGURES = (
    "iterations",
    "coefficient",
    "standard error",
    "as trained",
    "bits",
    "s",
    "s an iteration",
)


def made(model: str, rows: int) -> pd.DataFrame:
    """Columns that correlate by a half, and a logistic or normal outcome y."""
    rng, d = np.random.default_rng(5), MADE_COLUMNS
    x = rng.normal(size=(rows, d)) @ np.linalg.cholesky(0.5 * np.eye(d) + 0.5).T
    scores = x @ rng.normal(size=d) * 0.5 - 1
    drawn = scores + (rng.logistic if model == "logistic" else rng.normal)(size=rows)
    frame = pd.DataFrame(x, columns=[f"x{k + 1}" for k in range(d)])
    return frame.assign(y=(drawn > 0).astype(int) if model == "logistic" else drawn)


def read(name: str, model: str, folder: Path, rows: int = MADE_ROWS) -> tuple[pd.DataFrame, str]:
    """A table, and the column to predict."""
    if name == MADE:
        return made(model, rows), "y"
    need, target = TABLES[name]
    return need.load(folder), need.labels[0] if model == "logistic" else target


def pooled(x: Array, y: Array, model: str) -> Any:
    """What statsmodels fits; x: rows with a column of ones."""
    try:
        from statsmodels.api import OLS, Logit
    except ImportError:
        raise ParameterError("statsmodels is not installed: take the extra test") from None
    if model == "linear":
        return OLS(y, x).fit()
    return Logit(y, x).fit(disp=0, method="newton", maxiter=300, tol=1e-12)


def short(run: RunResult, frame: pd.DataFrame, y: Array, model: str) -> float:
    """Of the model as trained, beside the encoded rows' best: log loss above, or R^2 below."""
    x, weights = np.asarray(encode_shard(frame, run.schema).x), run.as_trained[0]
    scores, fit = x @ weights.reshape(len(weights), -1)[:, 0], pooled(x, y, model)
    if model == "logistic":
        return float(np.mean(np.logaddexp(0, scores) - y * scores) + fit.llf / len(y))
    target = targets_of(run.schema.label)
    predicted = scores * target.width[0] + target.low[0]
    return float((np.sum((predicted - y) ** 2) - fit.ssr) / np.sum((y - y.mean()) ** 2))


def beside(
    frame: pd.DataFrame, label: str, model: str, protocol: str, profile: str
) -> dict[str, Any]:
    """Figures of one run."""
    began = time.monotonic()
    asked: dict[str, Any] = {LABELS[model]: label, "profile": profile}
    run = simulate(
        data=frame, model=model, protocol=protocol, no_privacy=True, test_share=0, seed=1, **asked
    )
    whole = time.monotonic() - began
    if run.inference is None:
        raise ParameterError(f"there was no last step: {run.warnings}")
    y, x = frame[label].to_numpy(float), frame[list(run.schema.feature_names)].astype(float)
    fit = pooled(np.column_stack([np.ones(len(y)), x]), y, model)
    ours, plan = run.inference, run.plan
    return {
        "iterations": plan.rounds,
        "coefficient": float(np.abs((ours.coef[0] - fit.params) / fit.bse).max()),
        "standard error": float(np.abs(ours.se[0] / fit.bse - 1).max()),
        "as trained": short(run, frame, y, model),
        "bits": plan.security_bits,
        "s": whole,
        "s an iteration": float(np.median(run.costs.whole_seconds)),
    }


def line(row: dict[str, Any]) -> str:
    """A row of a table in Markdown."""
    styles = {
        "iterations": "d",
        "as trained": ".4f",
        "bits": "d",
        "s": ".0f",
        "s an iteration": ".2f",
    }
    cells = [row[each] for each in ("data", "rows", "model", "protocol")]
    cells += [format(row[each], styles.get(each, ".1e")) for each in FIGURES]
    return f"| {' | '.join(map(str, cells))} | {row['GB']:.1f} |"


def rows_of(
    names: list[str], models: list[str], protocols: list[str], folder: Path, profile: str
) -> Iterator[dict[str, Any]]:
    """Figures of every table, model and protocol; GB: the most this process has held so far."""
    for name in names:
        for model in models:
            frame, label = read(name, model, folder)
            for protocol in protocols:
                found = beside(frame, label, model, protocol, profile)
                held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                table = {"data": name, "rows": len(frame), "model": model, "protocol": protocol}
                yield table | found | {"GB": held}


def main(
    data: Annotated[list[str] | None, typer.Option(help="lbw … made; default all.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="logistic, linear; default both.")] = None,
    protocol: Annotated[list[str] | None, typer.Option(help="Default: both of CKKS.")] = None,
    data_folder: Annotated[Path, typer.Option(help="Where the tables are.")] = FOLDER,
    profile: Annotated[str, typer.Option(help="secure or fast-insecure.")] = "secure",
    as_json: options.AsJson = False,
) -> None:
    """Default runs without privacy beside statsmodels on the pooled rows."""
    with refusals():
        known = [*TABLES, MADE]
        for name in data or []:
            if name not in known:
                raise ParameterError(f"data={name!r} is not one of {', '.join(known)}")
        asked = (data or known, model or [*MODELS], protocol or [ENCRYPTED_ROWS, ENCRYPTED_MODEL])
        found = rows_of(*asked, data_folder, profile)
        if as_json:
            print(to_json(list(found)), end="")
            return
        heads = ("data", "rows", "model", "protocol", *FIGURES, "GB")
        print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for row in found:
            print(line(row), flush=True)


if __name__ == "__main__":
    typer.run(main)
