"""The main job on a SuperLink that this project did not start: `sims.lab.studies.flower.fleet`.

`python -m tests.flower.elsewhere FOLDER [KEY=VALUE …]` runs examples/flower-regression there with
`flwr run`, as a user who was given an address does, and prints what it left; FOLDER must not exist.
KEY=VALUE: run configuration. The nodes' keys are registered, and each node has rows of its own in a
file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from sims.lab.studies.flower.fleet import Fleet
from tests.flower.environment import ROOT

APP = ROOT / "examples" / "flower-regression"

EXACT = {
    "cohort-exact-sums": True,
    "cohort-min-colluders": 0,
    "cohort-accept-unbounded": True,
}
"""Terms of an owner who accepts a run without noise or a proof that its iterates stay bounded."""
COLUMNS = ["rate_marriage", "yrs_married", "religious", "educ", "occupation", "occupation_husb"]


def women() -> Any:
    """A foreign table: statsmodels' survey of 6,366 women, R. Fair 1978."""
    from statsmodels.datasets import fair

    data = fair.load_pandas().data
    data["affair"] = (data.affairs > 0).astype(int)
    return data[[*COLUMNS, "affair"]].sample(frac=1, random_state=0)


def schema_of(frame: Any) -> dict[str, Any]:
    """Public ranges: the survey's own scales."""
    columns = [
        {
            "kind": "numeric",
            "name": name,
            "low": float(frame[name].min()),
            "high": float(frame[name].max()),
            "typical": round(float(frame[name].mean()), 1),
            "spread": round(float(frame[name].std()), 1),
        }
        for name in COLUMNS
    ]
    label = {"name": "affair", "positive": "1", "negative": "0"}
    found = {"version": 1, "scaling": "standard", "row_norm": None, "label": label}
    return {**found, "columns": columns}


def hospitals(folder: Path, **more: Any) -> list[dict[str, Any]]:
    """Three nodes' configurations, each with a file of rows and a home folder; schema.json."""
    frame = women()
    folder.mkdir(parents=True)
    (folder / "schema.json").write_text(json.dumps(schema_of(frame)))
    frame.to_csv(folder / "all.csv", index=False)
    found = []
    for k in range(3):
        frame.iloc[k::3].to_csv(folder / f"rows{k}.csv", index=False)
        own = {"cohort-data": str(folder / f"rows{k}.csv"), "cohort-home": str(folder / f"home{k}")}
        own["cohort-schema"] = str(folder / "schema.json")
        found.append({**own, "cohort-name": f"hospital-{'abc'[k]}", **more})
    return found


def main() -> int:
    """Run and print; 1 if the run did not complete."""
    folder = Path(sys.argv[1]).absolute()
    given = (word.partition("=") for word in sys.argv[2:])
    config = {name: json.loads(value) for name, _, value in given}
    terms = EXACT if config.get("no-privacy") else {}
    there = Fleet(folder, hospitals(folder / "hospitals", **terms))
    config = {"schema": str(folder / "hospitals" / "schema.json"), **config}
    began = time.monotonic()
    with there.running():
        print(f"up after {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        status, log = there.run(APP, {**config, "out": str(folder / "out")})
    print(f"{status} after {time.monotonic() - began:.0f} s\n{log}")
    for path in sorted((folder / "out").glob("*")):
        print(f"{path.stat().st_size:>10,} bytes  {path.name}")
    return int(status != "finished:completed")


if __name__ == "__main__":
    sys.exit(main())
