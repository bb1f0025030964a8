"""Every example of a study's help runs, as it stands."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ciphercohort.study.commands import COMMANDS, PERSON_TIME
from tests.sims.model_runs import cohort

HELP = (*(study.epilog for study in COMMANDS), PERSON_TIME)
EXAMPLES = [line for text in HELP for line in text.split("\n\n")[1:]]
assert len(EXAMPLES) == 11


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, rows = np.random.default_rng(0), 1200
    arm, days = rng.choice(["old", "new"], rows), rng.integers(20, 1000, rows)
    columns = {
        "sex": rng.choice(["f", "m"], rows),
        "arm": arm,
        "days": days,
        "died": (rng.random(rows) < 0.4).astype(int),
        "hospital": rng.choice(list("pqrs"), rows),
    }
    own = {
        "patients.csv": columns,
        "lung.csv": columns,
        "stays.csv": {
            **{name: columns[name] for name in ("sex", "arm", "died", "hospital")},
            "falls": rng.negative_binomial(2, 0.02, rows),
            "log_days": np.log(days).round(3),
            "cost": rng.gamma(2, 800, rows).round(2),
        },
    }
    for name, table in own.items():
        pd.DataFrame(table).to_csv(tmp_path / name, index=False)
    monkeypatch.chdir(tmp_path)
    run = cohort(*shlex.split(example)[1:])
    assert run.exit_code == 0, run.output
