"""Do intervals of imputed rows hold the truth, and what do they cost?

    python -m sims.lab.studies.imputation [--studies 120] [--out FILE]

Of 400 rows with a linear outcome, two covariates lose cells: one at random given the others and the
outcome. Owners' own draws (`parties.reader.imputation`), least squares of each, pooled by
`ciphercohort.study.imputed`. Beside them stand the rows before they lost cells, the complete rows
alone, and statsmodels' MICE of the same rows.

    own       models fitted to the study's own rows, as a simulation without a schema does
    public    to another sample, of as many rows or ten times as many, as `schema init` does

Rubin's rules are for models fitted to the very rows that are analysed. Draws from other rows bring
information that an analysis of the study's rows alone does not have, and T = U + (1 + 1/m) B counts
it as uncertainty: with models that are known exactly, Q has the variance U - B, and T says U + B.
So intervals are too wide, by design (Reiter, Biometrika 95, 2008).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from ciphercohort.study.imputed import Pooled
from parties.reader.imputation import drawn
from parties.reader.infer import infer_schema
from parties.reader.schema import Schema
from parties.reader.views import by_range, encode_with_views
from sims.lab.studies.curves import REACH, arguments

Array = NDArray[np.float64]
ROWS, DRAWS, OUTCOME = 400, 20, "cost"
NAMES, TRUTH = ("age", "bmi"), np.array([0.05, 0.2])
"""The outcome has noise of 1 around them."""
Interval = tuple[Array, Array, Array]
"""Coefficients, low and high ends at 95 %."""


@dataclass(frozen=True)
class Fit:
    """As `Pooled` takes it."""

    coef: Array
    se: Array
    complete_freedom: float
    names: tuple[str, ...] = NAMES
    ratio: str = ""

    @property
    def errors(self) -> dict[str, Array]:
        """By name."""
        return {"se": self.se}


def table(rng: np.random.Generator, rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Whole, and with cells missing."""
    age = rng.normal(60, 10, rows)
    bmi = 25 + 0.1 * (age - 60) + rng.normal(0, 3, rows)
    cost = np.column_stack([age, bmi]) @ TRUTH + rng.normal(0, 1, rows)
    whole = pd.DataFrame({"age": age, "bmi": bmi, OUTCOME: cost})
    holed = whole.copy()
    lost = 1 / (1 + np.exp(0.8 - (cost - 8)))  # a third
    holed.loc[rng.random(rows) < lost, "bmi"] = np.nan
    holed.loc[rng.random(rows) < 0.15, "age"] = np.nan
    return whole, holed


def least_squares(x: Array, y: Array) -> Fit:
    """With an intercept, which is left out of the figures."""
    rows = np.column_stack([np.ones(len(x)), x])
    inverse = np.linalg.inv(rows.T @ rows)
    theta = inverse @ rows.T @ y
    freedom = len(x) - rows.shape[1]
    variance = np.sum((y - rows @ theta) ** 2) / freedom * np.diag(inverse)
    return Fit(theta[1:], np.sqrt(variance[1:]), freedom)


def one(frame: pd.DataFrame) -> Interval:
    """Of complete rows."""
    rows = frame.dropna()
    fit = least_squares(rows[[*NAMES]].to_numpy(), rows[OUTCOME].to_numpy())
    wide = student.ppf(0.975, fit.complete_freedom) * fit.se
    return fit.coef, fit.coef - wide, fit.coef + wide


def models(sample: pd.DataFrame) -> Schema:
    """Those that `schema init --impute` fits to a sample."""
    found = infer_schema(
        sample, [OUTCOME], scaling="range", row_norm=None, missing="typical", impute=DRAWS
    )
    return by_range(found)


def pooled(schema: Schema, holed: pd.DataFrame, coins: bytes) -> Interval:
    """Of an owner's own draws."""
    views = encode_with_views(holed, schema, coins=coins)[1]
    shift, scale = schema.affine()
    fits = list[Any]()
    for draw in range(1, DRAWS + 1):
        x = shift + scale * views.imputed(drawn(schema, draw)).x[:, :-1]
        fits.append(least_squares(x, holed[OUTCOME].to_numpy()))
    rows = Pooled(fits=tuple(fits)).rows()
    coef, low, high = (np.array([row[end] for row in rows]) for end in ("coef", "low", "high"))
    return coef, low, high


def mice(holed: pd.DataFrame, seed: int) -> Interval:
    """statsmodels' chained equations, 5 turns before and one between draws; normal intervals."""
    import statsmodels.api as sm
    from statsmodels.imputation.mice import MICE, MICEData

    np.random.seed(seed)  # noqa: NPY002 (it draws from there)
    found = MICE(f"{OUTCOME} ~ age + bmi", sm.OLS, MICEData(holed), n_skip=1).fit(5, DRAWS)
    coef, wide = found.params[1:], norm.ppf(0.975) * found.bse[1:]
    return coef, coef - wide, coef + wide


def compare(studies: int, anchors: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Coverage, and the mean half-width beside that of errors; anchors: studies by statsmodels."""
    rng, found = np.random.default_rng(seed), dict[str, list[Interval]]()
    for k in range(studies):
        whole, holed = table(rng, ROWS)
        coins = k.to_bytes(4, "big")
        each = {
            "nothing missing": one(whole),
            "complete rows": one(holed),
            "own": pooled(models(holed), holed, coins),
            "public": pooled(models(table(rng, ROWS)[1]), holed, coins),
            "public, ten times as many": pooled(models(table(rng, 10 * ROWS)[1]), holed, coins),
        }
        if k < anchors:
            each["statsmodels' MICE"] = mice(holed, k)
        for name, interval in each.items():
            found.setdefault(name, []).append(interval)
    for name, own in found.items():
        coef, low, high = (np.array(part) for part in zip(*own, strict=True))
        error = np.sqrt(np.mean((coef - TRUTH) ** 2, axis=0))
        yield {
            "models": name,
            "studies": len(own),
            "coverage": np.mean((low <= TRUTH) & (high >= TRUTH), axis=0).tolist(),
            "error": error.round(5).tolist(),
            "width_over_error": (np.mean(high - low, axis=0) / (2 * REACH * error)).tolist(),
        }


def main() -> None:
    """Each way, as JSON."""
    asked = arguments(__doc__)
    lines = list(compare(asked.studies, asked.studies // 3))
    for line in lines:
        print(json.dumps(line), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
