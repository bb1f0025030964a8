"""Tables for runs without privacy."""

from __future__ import annotations

import numpy as np
import pandas as pd


def lopsided_frame(rows: int, seed: int = 4) -> pd.DataFrame:
    """Columns of all scales, correlated, one of categories and one with a long tail; label y."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 12, rows).round()
    frame = pd.DataFrame(
        {
            "age": age,
            "pressure": (90 + 0.6 * age + rng.normal(0, 9, rows)).round(),
            "marker": np.exp(rng.normal(0, 1.0, rows)).round(2),
            "smoker": rng.integers(0, 2, rows),
            "ward": rng.choice(["A", "B", "C"], rows, p=[0.6, 0.3, 0.1]),
        }
    )
    z = -6 + 0.06 * age + 0.01 * frame.pressure + 0.25 * frame.marker + 0.8 * frame.smoker
    return frame.assign(y=(z + (frame.ward == "B") + rng.logistic(size=rows) > 0).astype(int))
