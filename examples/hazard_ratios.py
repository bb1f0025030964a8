"""Hazard ratios of three hospitals on one machine, as if they were four: seconds of each sum.

    python examples/hazard_ratios.py
    python examples/hazard_ratios.py --rows 4000 --covariates 20 --bins 100 --keep DIR

Of made-up rows. Starts the centre and the hospitals as examples/three_hospitals.py does, fits a Cox
model across them by secure sums, and compares it with `cohort survival` on the same rows in one
process.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent))
from three_hospitals import NAMES, cohort, free_ports, introduce, running

COX = ("--model", "cox")


def main() -> int:
    """Fit both, print what it took; 1 if they differ by a millionth of a standard error."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="cohort-") as scratch:
        home = Path(options.keep or scratch).absolute()
        home.mkdir(parents=True, exist_ok=True)
        prepare(home, options)
        found(home)
        grid = ("--grid", options.bins)
        with running(home, options):
            cohort("coordinator", "describe", home / "centre")  # waits until all are online
            began = time.monotonic()
            cohort("coordinator", "survival", home / "centre", *COX, *grid)
            seconds = time.monotonic() - began
        cohort(
            *("survival", *COX, *grid, "--data", home / "all.csv", "--split", "by:hospital"),
            *("--schema", home / "schema.json", "--out", home / "simulated"),
        )
        deployed = next((home / "centre" / "sessions").rglob("survival.json"))
        here, there = (
            pd.DataFrame(json.loads(path.read_text())["inference"])
            for path in (home / "simulated" / "survival.json", deployed)
        )
        gap = float((np.abs(here.coef - there.coef) / here.se).max())
        show(home, seconds, gap)
        return 0 if gap < 1e-6 else 1


def arguments() -> argparse.Namespace:
    """Options of this script."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--covariates", type=int, default=20)
    parser.add_argument("--bins", type=int, default=100, help="of times")
    parser.add_argument("--keep", help="folder to leave everything in")
    parser.set_defaults(network=False)
    return parser.parse_args()


def prepare(home: Path, options: argparse.Namespace) -> None:
    """Rows of each hospital, all rows with a column `hospital`, and the schema."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (options.rows, options.covariates))
    death = 30 * rng.exponential(np.exp(-x @ np.linspace(-0.5, 0.5, options.covariates)))
    leaves = rng.uniform(10, 60, options.rows)
    rows = pd.DataFrame(x, columns=[f"x{k}" for k in range(options.covariates)])
    rows["months"], rows["died"] = np.minimum(death, leaves), (death <= leaves).astype(int)
    rows["hospital"] = rng.choice(NAMES, options.rows)
    rows.to_csv(home / "all.csv", index=False)
    for name, own in rows.groupby("hospital"):
        own.drop(columns="hospital").to_csv(home / f"{name}.csv", index=False)
    stays = ("--time", "months", "--event", "died", "--exclude", "hospital")
    cohort("schema", "init", home / "all.csv", *stays, "--out", home / "schema.json")


def found(home: Path) -> None:
    """`init` for the centre and the hospitals, for exact sums; invitation and cards."""
    fleet, control, own, *relays = (f"127.0.0.1:{port}" for port in free_ports(6))
    centre, passphrase = home / "centre", home / "passphrase"
    passphrase.touch(mode=0o600)
    passphrase.write_text("correct horse battery staple\n")
    addresses = ("--fleet", fleet, "--public", fleet, "--control", control, "--serverappio", own)
    schema = ("--schema", home / "schema.json")
    cohort("coordinator", "init", centre, *schema, *addresses, "--no-privacy")
    common = ("--invitation", centre / "invitation.json", "--passphrase-file", passphrase)
    common += ("--consent", "policy", "--accept-no-privacy", "--exact-sums", "--no-ledger")
    introduce(home, relays, *common)


def show(home: Path, seconds: float, gap: float) -> None:
    """Seconds and bytes of the sums, and of the command."""
    statuses = sorted((home / "centre" / "sessions").rglob("status.json"), key=last_written)
    took = []
    for path in statuses[1:]:  # the first is Table 1
        told = json.loads(path.read_text())
        took.append(sum(told["seconds"].values()))
        sent = sum(told["bytes_per_party"].values())
        print(f"sum {told['session'][:8]}: {took[-1]:.2f} s, {sent / 1e6:.2f} MB of each hospital")
    print(f"{len(took)} sums: {sum(took):.1f} s")
    print(f"the command, that starts its Flower run: {seconds:.1f} s")
    print(f"largest difference of a coefficient to the simulation's: {gap:.1e} standard errors")


def last_written(path: Path) -> float:
    """Of a file [s]."""
    return path.stat().st_mtime


if __name__ == "__main__":
    sys.exit(main())
