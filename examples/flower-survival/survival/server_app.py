"""The server's half: Newton's steps on the partial likelihood, ties as Breslow has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from ciphercohort.flower import SecureGrid

app = ServerApp()


def ask(grid: Grid, kind: str, **records: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """The sum over all hospitals of what each replies."""
    content = RecordDict(
        {
            name: ArrayRecord({key: Array(np.asarray(value)) for key, value in record.items()})
            for name, record in records.items()
        }
    )
    requests = [Message(content, node, kind) for node in grid.get_node_ids()]
    [reply] = grid.send_and_receive(requests)
    return {key: array.numpy() for key, array in reply.content.array_records["sums"].items()}


def fit(grid: Grid, rounds: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients and their inverse information, of the columns as they are."""
    first = ask(grid, "query.moments")
    mean = first["sum"] / first["count"]
    std = np.sqrt(first["squares"] / first["count"] - mean**2)
    scale = {"mean": mean, "std": std}
    found = ask(grid, "query.events", scale=scale)
    times = np.flatnonzero(found["events"])
    weights, columns = found["weights"][times], found["columns"]
    beta = np.zeros(len(mean))
    information = np.eye(len(mean))
    for _ in range(rounds):
        sums = ask(grid, "train", scale=scale, step={"times": times, "beta": beta})
        means = sums["risk_x"] / sums["risk"][:, None]
        gradient = columns - weights @ means
        squares = sums["risk_xx"] / sums["risk"][:, None, None]
        outer = means[:, :, None] * means[:, None, :]
        information = np.einsum("t,tjk->jk", weights, squares - outer)
        step = np.linalg.solve(information, gradient)
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    return beta / std, np.linalg.inv(information) / np.outer(std, std)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Fit, and say so."""
    grid = SecureGrid(grid)
    beta, inverse = fit(grid, int(context.run_config["num-server-rounds"]))
    errors = np.sqrt(np.diag(inverse))
    for name, value, error in zip(("treated", "age", "score"), beta, errors, strict=True):
        print(f"{name:>10}: {value:9.6f} +- {error:.6f}")
    if context.run_config["out"]:
        np.savez(str(context.run_config["out"]), beta)
