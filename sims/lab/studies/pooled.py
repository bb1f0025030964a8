r"""Does a study across sites say what the same study on pooled rows would have said?

    python -m sims.lab.studies.pooled --data edin --data lbw --data adult

Question, for each data set over three sites, without privacy: how far are coefficients and standard
errors of secure sums from statsmodels' on pooled rows, and the area under the ROC curve of secure
histograms from scikit-learn's? The same is asked with a tenth of the cells of three columns missing
at random, for each answer that a schema can give: `refuse`, `typical`, `indicator`. Then the pooled
table is imputed by scikit-learn: the schema's typical values, with or without an indicator.

`same bytes`: whether the sites encode their holed rows to the bytes of scikit-learn's imputed ones.
So it is with `typical`: nothing that is sent can tell which cells were missing.

Tables: see `sims.lab.papers.data`; schemas: docs/schemas. statsmodels comes with the extra `test`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, get_args

import msgspec
import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from ciphercohort.cli import options
from ciphercohort.cli.console import refusals
from ciphercohort.results.documents import to_json
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.result import Array
from parties.reader.schema import CategoricalColumn, Column, Missing, NumericColumn, Schema
from parties.reader.shard import encode_shard
from protocols.errors import DataError, ParameterError
from sims.api import simulate
from sims.evaluation import evaluate
from sims.lab.papers.data import ADULT, EDIN, FOLDER, LBW, Need

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schemas"
SITES, SHARE, SEED, ITERATIONS = 3, 0.1, 1, 20
ANSWERS = (None, *get_args(Missing))
FIGURES = ("coefficient", "standard error", "ROC area", "same bytes")
Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A table, and columns that lose cells.

    without: values of a column whose rows are left out: nobody with them has the outcome, so that
    there would be no maximum.
    """

    need: Need
    holed: tuple[str, ...]
    without: Mapping[str, tuple[str, ...]]

    def read(self, folder: Path, schemas: Path) -> tuple[pd.DataFrame, Schema]:
        """Rows and schema."""
        frame = self.need.load(folder)
        for name, values in self.without.items():
            frame = frame[~frame[name].isin(values)]
        schema = Schema.load(schemas / f"{self.need.name}.json")
        names = [column.name for column in schema.columns]
        return frame[[*names, *schema.label.names]].reset_index(drop=True), schema


STUDIES = {
    "edin": Study(EDIN, ("x1", "x2", "x3"), {}),
    "lbw": Study(LBW, ("x1", "x2", "x9"), {}),
    "adult": Study(
        ADULT,
        ("age", "workclass", "hours_per_week"),
        {"workclass": ("Without-pay", "Never-worked")},
    ),
}


def compare(frame: pd.DataFrame, schema: Schema, holed: tuple[str, ...]) -> Iterator[Row]:
    """A row of the table for the whole frame, and one for each answer to missing cells."""
    for missing in ANSWERS:
        asked, table = schema, frame
        if missing:
            asked, table = with_answer(schema, holed, missing), with_holes(frame, holed)
        row: Row = {"missing": missing or "nothing", "rows": len(table)}
        try:
            shard = encode_shard(table, asked)
        except DataError as error:
            yield row | {"refused": str(error)}
            continue
        model = trained(table, asked)
        found = evaluate(model, table, parties=SITES, inference=True, seed=SEED)
        if found.inference is None:
            raise ParameterError(found.notes[-1])
        ours, known = found.inference, roc_auc_score(shard.y, shard.x @ model.weights)
        imputed, x = pooled(table, asked)
        coef, se = statsmodels_fit(x, shard.y, np.isfinite(ours.coef[0]))
        row["coefficient"] = float(np.nanmax(np.abs(ours.coef[0] - coef)))
        row["standard error"] = float(np.nanmax(np.abs(ours.se[0] / se - 1)))
        row["ROC area"] = abs(found.figures.auc - float(known))
        if missing == "typical":
            same = encode_shard(imputed, asked).fingerprint() == shard.fingerprint()
            row["same bytes"] = "yes" if same else "NO"
        yield row


def trained(frame: pd.DataFrame, schema: Schema) -> ReleasedModel:
    """A model of encrypted sums; the inference goes on to the maximum from wherever it is."""
    with TemporaryDirectory() as folder:
        schema.save(Path(folder) / "schema.json")
        result = simulate(
            data=frame,
            label=schema.label.name,
            schema=Path(folder) / "schema.json",
            parties=SITES,
            protocol="secure-aggregation",
            update="nag",
            iterations=ITERATIONS,
            no_privacy=True,
            seed=SEED,
        )
    return ReleasedModel(schema=schema, weights=result.weights)


def statsmodels_fit(x: Array, y: Array, kept: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Coefficients and standard errors of pooled rows, the intercept first; NaN if not kept.

    kept: columns that the others do not determine, as the secure sums found.
    """
    try:
        from statsmodels.api import Logit
    except ImportError:
        raise ParameterError("statsmodels is not installed: take the extra test") from None
    rows = np.column_stack([np.ones(len(x)), x])[:, kept]
    fit = Logit(y, rows).fit(disp=0, method="newton", maxiter=100, tol=1e-10)
    coef, se = (np.full(len(kept), np.nan) for _ in range(2))
    coef[kept], se[kept] = fit.params, fit.bse
    return coef, se


def with_holes(frame: pd.DataFrame, holed: tuple[str, ...]) -> pd.DataFrame:
    """A tenth of the cells of some columns missing, completely at random."""
    rng, frame = np.random.default_rng(SEED), frame.copy()
    for name in holed:
        frame[name] = frame[name].mask(rng.random(len(frame)) < SHARE)
    return frame


def with_answer(schema: Schema, holed: tuple[str, ...], missing: Missing) -> Schema:
    """The schema with an answer to empty cells; the first category is the typical one."""

    def answered(column: Column) -> Column:
        if column.name not in holed:
            return column
        fields: dict[str, Any] = {"missing": missing}
        if isinstance(column, CategoricalColumn) and missing == "typical":
            fields["typical"] = column.categories[0]
        return msgspec.structs.replace(column, **fields)

    columns = tuple(map(answered, schema.columns))
    return replace(schema, columns=columns)


def pooled(frame: pd.DataFrame, schema: Schema) -> tuple[pd.DataFrame, Array]:
    """The table as scikit-learn imputes it, and its features in the data's own units."""
    numeric = [column for column in schema.columns if isinstance(column, NumericColumn)]
    # A value beyond the range counts as its end.
    ends = {c.name: frame[c.name].astype(float).clip(c.low, c.high) for c in numeric}
    frame, steps = frame.assign(**ends), []
    imputed = frame.copy()
    for column in schema.columns:
        also = column.missing == "indicator"
        if isinstance(column, NumericColumn):
            fill = SimpleImputer(strategy="constant", fill_value=column.typical, add_indicator=also)
            step = fill
        else:
            fill = SimpleImputer(
                strategy="constant", fill_value="missing" if also else column.typical
            )
            levels = [*column.categories, *["missing"] * also]
            code = OneHotEncoder(categories=[levels], handle_unknown="ignore", sparse_output=False)
            step = make_pipeline(fill, code)
        steps.append((column.name, step, [column.name]))
        if column.missing == "typical":
            imputed[column.name] = fill.fit_transform(frame[[column.name]])[:, 0]
    return imputed, np.asarray(ColumnTransformer(steps).fit_transform(frame), dtype=np.float64)


def lines(name: str, rows: Iterable[Row]) -> Iterator[str]:
    """Rows of a table in Markdown; what was refused is a sentence."""
    for row in rows:
        if "refused" in row:
            cells = ["refused"] * 3 + [""]
        else:
            found = (row.get(figure, "") for figure in FIGURES)
            cells = [each if isinstance(each, str) else f"{each:.1e}" for each in found]
        yield f"| {name} | {row['missing']} | {row['rows']:,} | {' | '.join(cells)} |"


def main(
    data: Annotated[list[str] | None, typer.Option(help="edin, lbw, adult; default all.")] = None,
    data_folder: Annotated[Path, typer.Option(help="Where the tables are.")] = FOLDER,
    schemas: Annotated[Path, typer.Option(help="Folder of the schemas.")] = SCHEMAS,
    as_json: options.AsJson = False,
) -> None:
    """Coefficients, standard errors and ROC of sites beside those of pooled rows."""
    with refusals():
        found: dict[str, list[Row]] = {}
        if not as_json:
            print(f"| data | missing | rows | {' | '.join(FIGURES)} |\n|{'---|' * 7}")
        for name in data or STUDIES:
            if name not in STUDIES:
                raise ParameterError(f"data={name!r} is not one of {', '.join(STUDIES)}")
            frame, schema = STUDIES[name].read(data_folder, schemas)
            found[name] = []
            for row in compare(frame, schema, STUDIES[name].holed):
                found[name].append(row)
                if not as_json:
                    print(*lines(name, [row]), flush=True)
        if as_json:
            print(to_json(found), end="")


if __name__ == "__main__":
    typer.run(main)
