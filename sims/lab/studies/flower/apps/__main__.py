"""Example apps of Flower's own repository, plain and under secure sums.

Question: what does a user of Flower change, what does the model lose, and what is refused?

    git clone --depth 1 https://github.com/adap/flower
    python -m sims.lab.studies.flower.apps flower/examples OUT

Each app is copied twice, one copy is changed as docs/flower.md says, and both run in one process on
synthetic data of the same shape (`stand_ins`), with the same random numbers. Prints for each app
the changed lines (its dependency is one of them), the number of values and the largest difference
between the two last models, or the sentence with which it was refused. Apps that ask queries keep
no model: they ran. Nothing of Flower's stands in this repository.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from parties.launch import program

CLIENT = "from flwr.clientapp import ClientApp\n"
SERVER = "from flwr.serverapp import Grid, ServerApp\n"
WORKFLOWS = "from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow\n"
OURS = "from ciphercohort.flower import "
_SECONDS = 600

# File (without folder and "_app.py"), what is there, what takes its place; once.
Edits = list[tuple[str, str, str]]


def trained(mods: tuple[str, str] = ("ClientApp()", "ClientApp(mods=[secure_sum_mod])")) -> Edits:
    """What docs/flower.md says; mods: where the client takes the mod."""
    return [
        ("client", CLIENT, f"{CLIENT}{OURS}secure_sum_mod\n"),
        ("client", *mods),
        ("server", SERVER, f"{SERVER}{OURS}SecureSum\n"),
        ("server", "result = strategy.start(", "result = SecureSum(strategy).start("),
    ]


def asked() -> Edits:
    """Of an app that asks queries."""
    return [
        *trained()[:2],
        ("server", SERVER, f"{SERVER}{OURS}SecureGrid\n"),
        ("server", "= grid.send_and_receive(", "= SecureGrid(grid).send_and_receive("),
    ]


def legacy(mods: str, flow: str) -> Edits:
    """Of an app with SecAgg+."""
    return [
        ("client", r"from flwr.client.mod import (fixedclipping_mod, )?secaggplus_mod\n",
         f"{OURS}secure_sum_mod\n"),
        ("client", mods, "        secure_sum_mod,\n"),
        ("server", WORKFLOWS, f"{WORKFLOWS}{OURS}SecureSumWorkflow\n"),
        ("server", flow, "workflow = SecureSumWorkflow(means_only=True)\n"),
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """How an app is changed.

    both: edits of the plain copy too, so that both do the same; options: of its run, of which
    fractions count as changed lines.
    """

    edits: Edits
    both: Edits = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    clients: int = 10


EPSILON = 'SecureSumMod(largest=["epsilon"])'
CASES = {
    "quickstart-sklearn": Case(edits=trained()),
    "quickstart-numpy": Case(edits=trained()),
    "quickstart-pytorch": Case(edits=trained()),
    "fl-tabular": Case(edits=trained()),
    "federated-vae": Case(edits=trained()),
    "opacus": Case(edits=trained(), clients=6),
    "opacus, epsilon as the largest": Case(
        edits=[
            ("client", CLIENT, f"{CLIENT}{OURS}SecureSumMod\n"),
            ("client", "ClientApp()", f"ClientApp(mods=[{EPSILON}])"),
            trained()[2],
            (
                "server",
                "result = strategy.start(",
                "result = SecureSum(strategy, means_only=True).start(",
            ),
        ],
        clients=6,
    ),
    "custom-mods": Case(edits=trained(("    mods=[\n", "    mods=[\n        secure_sum_mod,\n"))),
    "custom-mods, half evaluate": Case(
        edits=trained(("    mods=[\n", "    mods=[\n        secure_sum_mod,\n")),
        options={"fraction-evaluate": 0.5},
    ),
    "advanced-pytorch": Case(edits=trained()),
    "advanced-pytorch, half train": Case(
        edits=trained(), options={"fraction-train": 0.5, "num-server-rounds": 2}
    ),
    "fl-dp-sa": Case(
        edits=legacy(
            "        secaggplus_mod,\n        fixedclipping_mod,\n",
            r"workflow = DefaultWorkflow\((.|\n)*?\n    \)\n",
        )
    ),
    "flower-secure-aggregation": Case(
        edits=legacy(
            "        secaggplus_mod,\n",
            r"workflow = DefaultWorkflow\(fit_workflow=fit_workflow\)\n",
        ),
        options={"is-demo": False, "fraction-evaluate": 1.0},
        clients=5,
    ),
    "quickstart-pandas": Case(edits=asked(), clients=5),
    "federated-analytics": Case(edits=asked(), clients=5),
    "federated-kaplan-meier-fitter": Case(edits=asked(), clients=5),
    "quickstart-jax": Case(
        edits=trained(),
        both=[("server", "fraction_train=0.1", "fraction_train=0.5")],
        options={"fraction-evaluate": 0.5, "batch-size": 16},
    ),
    "quickstart-huggingface": Case(
        edits=trained(), options={"fraction-train": 0.5, "fraction-evaluate": 0.5}, clients=6
    ),
    "quickstart-xgboost": Case(
        edits=trained(), options={"fraction-train": 1.0, "fraction-evaluate": 0.0}
    ),
}


def changed(folder: Path, case: Case) -> int:
    """Change the app of a folder; how many lines that is.

    Raises:
        ValueError: an edit finds nothing in it.
    """
    before = {path: path.read_text(encoding="utf-8") for path in folder.glob("*/*_app.py")}
    after = dict(before)
    for file, there, then in [*case.both, *case.edits]:
        [path] = [path for path in after if path.name == f"{file}_app.py"]
        pattern = there if "\\" in there else re.escape(there)
        after[path], count = re.subn(pattern, then, after[path], count=1)
        if not count:
            raise ValueError(f"{path.name} has no {there!r}: it is another version of the app")
    for path, text in after.items():
        path.write_text(text, encoding="utf-8")
    new = [set(text.splitlines()) - set(before[path].splitlines()) for path, text in after.items()]
    return 1 + sum(map(len, new)) + sum("fraction" in name for name in case.options)


def run(folder: Path, case: Case) -> str:
    """Run an app; the last line of its errors, or nothing."""
    arguments = [str(folder.resolve()), str(folder.resolve()), str(case.clients)]
    command = [*program("sims.lab.studies.flower.apps.run"), *arguments, json.dumps(case.options)]
    done = subprocess.run(  # noqa: S603 - the caller's own folder, no shell
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )  # fmt: skip
    folder.with_suffix(".log").write_text(done.stdout + done.stderr, encoding="utf-8")
    lines = done.stderr.strip().splitlines() or ["no words"]
    return lines[-1].split("Error: ", 1)[-1] if done.returncode else ""


def row(name: str, apps: Path, out: Path) -> list[str]:
    """Of the table."""
    case, app = CASES[name], apps / name.split(",")[0]
    own = out / re.sub("[, ]+", "-", name)
    plain, secure = own / "plain", own / "secure"
    for folder in (plain, secure):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(app, folder)
    lines = str(changed(secure, case))
    changed(plain, Case(edits=case.both))
    failed, refused = (run(folder, case) for folder in (plain, secure))
    if failed or refused:
        return [name, lines, "", f"plain failed: {failed}" if failed else f"refused: {refused}"]
    one, two = (list(np.load(f"{folder}.npz").values()) for folder in (plain, secure))
    if not one:
        return [name, lines, "", "ran"]
    apart = [np.abs(np.subtract(x, y, dtype=float)).max() for x, y in zip(one, two, strict=True)]
    return [name, lines, f"{sum(x.size for x in one):,}", f"{max(apart):.1g}"]


def main(
    apps: Annotated[Path, typer.Argument(help="Folder with Flower's example apps.")],
    out: Annotated[Path, typer.Argument(help="Folder for copies, models and logs.")],
    only: Annotated[str, typer.Option(help="Names that begin like this.")] = "",
) -> None:
    """Run all of them."""
    table = Table("app", "changed lines", "values", "largest difference, or what was said")
    for name in CASES:
        if name.startswith(only):
            found = row(name, apps, out)
            table.add_row(*found)
            print(" | ".join(found), flush=True)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
