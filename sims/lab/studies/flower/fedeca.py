"""FedECA on Flower, with pickled statistics and with sums: lines, coefficients, what is sent.

Question: does a weighted Cox regression of four hospitals stay the same where its server gets sums?

    git clone --depth 1 https://github.com/owkin/flower-fedeca
    python -m sims.lab.studies.flower.fedeca flower-fedeca OUT [--superlink]

The app (Ogier du Terrail et al., Nature Communications 2025) is copied twice. In both copies times
are whole numbers below 2,200, hundredths of their logarithm: a Cox regression looks at their order
alone, and sums need times that all sites know. One copy is changed (`SUMS`). Both run in one
process, or with --superlink by Flower's own commands on a SuperLink with a database. Prints changed
lines, the largest difference of coefficients, standard errors and p-values (naive and robust), and
how many of the numbers that single sites computed (moments, gradients, Hessians, sums over those at
risk; whole numbers left out) stand in the messages that the server got, or in the SuperLink's
files, as float64: plain's must be found there. Nothing of FedECA stands in this repository.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from flwr.app import Context, Message, RecordDict
from flwr.common.serde import message_to_proto
from numpy.typing import NDArray

from ciphercohort.flower.client import Client
from ciphercohort.flower.in_process import InProcessGrid
from parties.launch import program
from sims.lab.studies.flower.apps.__main__ import OURS, Case, Edits, changed
from sims.lab.studies.flower.fleet import Fleet
from sims.lab.studies.flower.workloads import App

CENTERS, POINTS = 4, 2200
_SECONDS = 900
MARK = "SUMMARY "


def _client(there: str, *then: str) -> tuple[str, str, str]:
    return "client", there, "".join(f"    {line}\n" for line in then)


def _server(there: str, *then: str) -> tuple[str, str, str]:
    return "server", there, "".join(f"    {line}\n" for line in then)


# Times on the grid, and a summary with all digits.
BOTH: Edits = [
    ("client", "    df_data = pd.read_csv(data_path)\n    if",
     "    df_data = pd.read_csv(data_path)\n"
     '    df_data["time"] = (100 * np.log(df_data["time"]) + 1250).round()\n    if'),
    ("server", "        print(summary)\n",
     f'        print("{MARK}" + summary.to_json(double_precision=15))\n'),
]  # fmt: skip
_TWO = '("number_events_by_time", "weights_counts_on_events")'
# A block of statements, from its first words to the first line that closes them.
_UP_TO, _REPLY = r"(.|\n)*?\n    ", r"    response_content = RecordDict\(\n        \{\n            "
SUMS: Edits = [
    ("client", "import Array, ConfigRecord", "import Array, ArrayRecord, ConfigRecord"),
    ("client", "# Flower ClientApp\napp = ClientApp()\n",
     f"{OURS}secure_sum_mod\n\n# Flower ClientApp\napp = ClientApp(mods=[secure_sum_mod])\n\n\n"
     "def sums(n, **named):\n"
     '    named = {k: n * np.array(v, float) for k, v in {"n": 1, **named}.items()}\n'
     '    arrays = {k: Array(np.asarray(v)) for k, v in named.items()}\n'
     '    return RecordDict({"sums": ArrayRecord(arrays)})\n'),
    ("client", "content=RecordDict(), reply_to", "content=sums(1), reply_to"),
    _client(rf"    configs_record = ConfigRecord\({_UP_TO}content = .*\n",
            "content = sums(n_samples, w=gradients[0], b=gradients[1], hessian=hessian)"),
    _client(rf'    response_content.config_records\["uncentered-moments"\] = {_UP_TO}\)\n',
            'n, both = len(df_client), [uncentered_moments[k] for k in ("moment1", "moment2")]',
            "response_content = sums(n, moments=both)"),
    _client(rf'{_REPLY}"local-surv{_UP_TO}\)\n',
            "told = local_survival_statistics",
            'at = np.array(told["distinct_event_times"], int)',
            f"told |= {{k: np.bincount(at, told[k], {POINTS}) for k in {_TWO}}}",
            f'sent = {_TWO[:-1]}, "sum_features_on_events", "total_number_samples")',
            "response_content = sums(1, **{k: told[k] for k in sent})"),
    _client(rf'{_REPLY}"local-phi{_UP_TO}\)\n',
            'response_content = sums(1, **local_phi_stats["local_phi_stats"])'),
    _client(rf'{_REPLY}"train-re{_UP_TO}\)\n',
            "told = [past_ll.item(), norm_delta, success, cox_model.fc1.weight.item()]",
            'response_content = sums(1, told=told, **local_phi_stats["local_phi_stats"])'),
    ("client", 'RecordDict({"Qk": ConfigRecord({"bytes": pickle.dumps(Qk)})})', "sums(1, Qk=Qk)"),
    ("server", "import inv\n", f"import inv\n\n{OURS}SecureGrid\n"),
    ("server", "    seed = 42\n", "    seed = 42\n    grid = SecureGrid(grid)\n"),
    _server("    replies = list(grid.send_and_receive(messages))\n",
            "[reply] = grid.send_and_receive(messages)"),
    _server("    return replies\n",
            'return {key: array.numpy() for key, array in reply.content["sums"].items()}'),
    _server(r"    local_moments = \[(.|\n)*?compute_global_moments\(local_moments\)\n",
            'n = replies["n"].item()',
            'mean, second = (pd.Series(each / n, ["treatment"]) for each in replies["moments"])',
            'told = {"means": mean, "vars": second - mean**2, "bias_correction": n / (n - 1)}',
            'told |= dict(global_uncentered_moment_1=mean, global_centered_moment_2=told["vars"])',
            'return {**told, "total_n_samples": n}'),
    _server(rf"    local_surv_stats = \[{_UP_TO}\]\n",
            'at = np.flatnonzero(replies["number_events_by_time"])',
            f'told = {{"moments": aggr_moments, **{{k: replies[k][at] for k in {_TWO}}}}}',
            'local_surv_stats = [{**replies, **told, "distinct_event_times": at.tolist()}]'),
    _server(rf'    risk_phi_stats_list = \[\n        pickle.loads\(msg{_UP_TO}\]\n',
            "told = glb_surv_stats",
            'risk_phi_stats_list = [{**told, "local_phi_stats": replies}]'),
    _server(r"    global_moments_bytes = replies\[0\].*\n",
            'global_moments_bytes = pickle.dumps(glb_surv_stats["moments"])'),
    _server(r"    risk_phi_stats_list = \[\n        pickle.loads\(\n(.|\n)*?success = train_.*\n",
            'told = pickle.loads(context.state["stats"]["global-surv-stats-bytes"])',
            'risk_phi_stats_list = [{**told, "local_phi_stats": replies}]',
            'past_ll, norm_delta, success, weight = replies["told"] / replies["n"]',
            'cox_model_state_dict = {"fc1.weight": torch.tensor([[weight]])}',
            'stats = {**told["global_survival_statistics"], **glb_gradient_and_hessian}',
            'two = "global_risk_phi_list", "global_risk_phi_x_list"',
            "robust_stats = {k: stats[k] for k in two}",
            'robust_stats["global_weights_counts_on_events"] = stats["weights_counts_on_events"]',
            'robust_stats["distinct_event_times"] = stats["distinct_event_times"]'),
    _server(rf'    return \[\n        rep.content.config_records\["nr-returns"\]{_UP_TO}\]\n',
            'w, b, hessian = (replies[key] / replies["n"] for key in ("w", "b", "hessian"))',
            'told = {"gradients": [w, b], "hessian": hessian}',
            'return [{"n-samples": 1, **{k: pickle.dumps(v) for k, v in told.items()}}]'),
    _server(r"    Qk_list = \[\]\n    for r in replies:(.|\n)*?    return Qk_list\n",
            'return [replies["Qk"]]'),
]  # fmt: skip


class KeptGrid(InProcessGrid):
    """Keeps the bytes of what the server gets."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """See `InProcessGrid`."""
        for reply in super().pull_messages(message_ids):
            with Path("kept.bin").open("ab") as kept:
                kept.write(message_to_proto(reply).SerializeToString())
            yield reply


def in_process(copy: Path) -> None:
    """Run a copy in this process; kept.bin there: what the server got, own.npz: each site's own."""
    os.chdir(copy)
    own: list[NDArray[np.float64]] = []
    plain = Client._own_content

    def noted(client: Client) -> RecordDict:
        content = plain(client)
        own.extend(array.numpy().ravel() for array in content.array_records["sums"].values())
        return content

    Client._own_content = noted  # type: ignore[method-assign,assignment]
    app = App(copy)
    server, client = (app.component(name)[1] for name in ("serverapp", "clientapp"))
    nodes = {1 + k: {"partition-id": k} for k in range(CENTERS)}
    server(KeptGrid(client, nodes, app.config), Context(1, 1, {}, RecordDict(), app.config))
    np.savez("own.npz", *own)


def on_superlink(copy: Path, fleet: Fleet) -> str:
    """Run a copy there; what its ServerApp printed."""
    status, log = fleet.run(copy, {"path-to-data": str(copy / "data" / "center{}" / "data.csv")})
    if status != "finished:completed":
        raise RuntimeError(f"{status}\n{log}")
    return log


def summaries(said: str) -> NDArray[np.float64]:
    """Of a run's output: naive and robust, coefficient to p-value."""
    found = [json.loads(line.split(MARK)[1]) for line in said.splitlines() if MARK in line]
    return np.array([[next(iter(column.values())) for column in each.values()] for each in found])


def found_in(store: bytes, own: Sequence[float]) -> int:
    """How many numbers stand there as eight bytes, in either order."""
    found = np.zeros(len(own), bool)
    for start in range(8):
        windows = np.frombuffer(store[start : start + (len(store) - start) // 8 * 8], "<u8")
        for order in ("<f8", ">f8"):
            found |= np.isin(np.array(own, order).view("<u8"), windows)
    return int(found.sum())


def main(
    app: Annotated[Path, typer.Argument(help="Folder of flower-fedeca.")],
    out: Annotated[Path, typer.Argument(help="New folder for copies and logs.")],
    superlink: Annotated[bool, typer.Option(help="On a SuperLink with a database.")] = False,
    one: Annotated[bool, typer.Option(hidden=True, help="APP itself, in this process.")] = False,
) -> None:
    """Run both copies, and compare."""
    if one:
        in_process(app)
        return
    said, stores = {}, {}
    for name, edits in {"plain": [], "sums": SUMS}.items():
        copy = out.absolute() / name
        shutil.copytree(app, copy, ignore=shutil.ignore_patterns(".git"))
        changed(copy, Case(edits=BOTH))
        lines = changed(copy, Case(edits=edits)) if edits else 0
        done = subprocess.run(  # noqa: S603 - our own arguments, no shell
            [*program("sims.lab.studies.flower.fedeca"), str(copy), str(out), "--one"],
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        (out / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        said[name], stores[name] = done.stdout, (copy / "kept.bin").read_bytes()
        if superlink:
            nodes = [{"partition-id": k} for k in range(CENTERS)]
            fleet = Fleet(out.absolute() / f"{name}-link", nodes, registered=False, database=True)
            with fleet.running():
                said[name] = on_superlink(copy, fleet)
                stores[name] = b"".join(
                    path.read_bytes() for path in fleet.folder.glob("state.db*")
                )
    every = [v for part in np.load(out / "sums" / "own.npz").values() for v in part.tolist()]
    own = sorted({v for v in every if v != round(v)})
    plain, summed = (summaries(said[name]) for name in ("plain", "sums"))
    print(f"changed lines: {lines}")
    print(f"coefficient, standard error, … p: {plain.tolist()}")
    print(f"largest difference: {np.abs(plain - summed).max():.1e}")
    where = "the SuperLink's database" if superlink else "what the server got"
    for name, store in stores.items():
        found = f"{found_in(store, own)} of {len(own)} numbers of single sites"
        print(f"{name}: {found} in {where}, {len(store):,} bytes")


if __name__ == "__main__":
    typer.run(main)
