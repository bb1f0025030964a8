"""Tables, schema and a model for evaluations and standard errors; nothing is clamped in them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ciphercohort.results.predict import ReleasedModel
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema, Targets

COLUMNS = (
    NumericColumn("age", 20.0, 90.0, 50.0, 10.0),
    NumericColumn("dose", -3.0, 3.0, 0.0, 1.0),
    CategoricalColumn("ward", ("A", "B", "C")),
)
SCHEMA = Schema(columns=COLUMNS, label=Label("died", "yes", "no"))
COUNTED = Schema(
    columns=COLUMNS, label=Targets((NumericColumn("visits", 0.0, 40.0),)), scaling="range"
)
COSTED = Schema(
    columns=COLUMNS, label=Targets((NumericColumn("cost", -100.0, 400.0),)), scaling="range"
)
MODEL = ReleasedModel(schema=SCHEMA, weights=np.array([0.51, -0.6, -0.1, 0.3, 0.0, -0.4]))


def table(rows: int = 900, seed: int = 0) -> pd.DataFrame:
    """Ages, doses, wards, three outcomes; `site` says who has a row."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(25, 85, rows).round(1),
            "dose": rng.normal(0, 0.9, rows).clip(-2.9, 2.9).round(2),
            "ward": rng.choice(["A", "B", "C"], rows, p=[0.5, 0.3, 0.2]),
            "site": rng.choice(["north", "south", "west"], rows, p=[0.6, 0.393, 0.007]),
        }
    )
    risk = 0.05 * (frame.age - 55) - 0.7 * frame.dose + 0.4 * (frame.ward == "B") - 0.4
    died = rng.random(rows) < 1 / (1 + np.exp(-risk))
    mean = np.exp(0.5 + 0.02 * (frame.age - 55) - 0.3 * frame.dose)
    cost = 150 + 40 * risk + rng.normal(0, 20, rows)
    return frame.assign(
        died=np.where(died, "yes", "no"), visits=rng.poisson(mean).clip(max=40), cost=cost
    )
