"""What a server that follows the protocol opens: totals, and nothing that tells of parts of them.

Two federations whose clients have other numbers and the same totals open the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from ciphercohort.flower import SecureGrid, SecureSumMod
from ciphercohort.flower.plan import SumPlan
from protocols.aggregate import one_time, residues
from tests.flower.federation import FIRST_NODE, Federation

CLIENTS = 6
# By client: weight, change of a value, metric; an integer and a number to be summed.
NEAR = [(64, 1.0, 0.5, -5, 3.25), (64, -2.0, -0.25, 4, 1.5), (64, 4.0, 1.0, 7, 1.25)]
BIG = 2**62
FAR = [(32, -1.0, -1.0, -BIG, -9000.5), (96, 1.0, 1.0, 5, 9006.0), (64, 2.0, 0.25, BIG + 1, 0.5)]
KINDS = ("first", "later", "coarse", "evaluate", "query", "sums")


def federation(rows: list[Any]) -> Federation:
    def own(context: Context) -> Any:
        return rows[int(context.node_config["partition-id"]) % len(rows)]

    def train(message: Message, context: Context) -> RecordDict:
        weight, change, metric = own(context)[:3]
        metrics = {"num-examples": weight, "loss": metric, "losses": [metric, 0.0]}
        arrays = {n: Array(a.numpy() + change) for n, a in message.content["arrays"].items()}
        content = RecordDict({"metrics": MetricRecord(metrics)})
        if message.metadata.message_type == "train":
            content["arrays"] = ArrayRecord(arrays)
        if "sums" in message.content["config"]:
            content["sums"] = query(message, context)["figures"]
        return content

    def query(message: Message, context: Context) -> RecordDict:
        whole, number = own(context)[3:]
        figures = {"whole": whole, "number": number, "most": 7.0, "least": 5.0}
        table = ArrayRecord({"whole": Array(np.array([whole, 1])), "x": Array(np.array([number]))})
        return RecordDict({"figures": MetricRecord(figures), "tables": table})

    mod = SecureSumMod(largest=["most"], smallest=["least"])
    return Federation(CLIENTS, train=train, query=query, mods=[mod])


def opened(kind: str, rows: list[Any], lost: float, monkeypatch: Any) -> tuple[Any, Any, Any]:
    """Words, exact numbers, and what becomes of them."""
    found = []
    real = SecureGrid._mean

    def tap(grid: SecureGrid, kind: str, closed: Any, words: Any, exact: Any) -> Any:
        found.append((words.copy(), exact.copy(), closed.total.layout.length))
        return real(grid, kind, closed, words, exact)

    monkeypatch.setattr(SecureGrid, "_mean", tap)
    here = federation(rows)
    plan = SumPlan(lost=lost, wide=kind != "coarse", weight_scale=64.0)
    grid = SecureGrid(here, plan)
    name = kind if kind in ("evaluate", "query") else "train"
    for number in range(2 if kind == "later" else 1):
        config = {"round": number} | ({"sums": 1} if kind == "sums" else {})
        arrays = ArrayRecord({"w": Array(np.full(200, float(number))), "b": Array(np.ones(3))})
        content = {"arrays": arrays, "config": ConfigRecord(config)}
        asked = [Message(RecordDict(content), FIRST_NODE + k, name) for k in range(CLIENTS)]
        [mean] = grid.send_and_receive(asked)
    return (*found[-1], mean)


@pytest.mark.parametrize("lost", [1 / 3, 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_totals_open_as_equal_numbers(
    kind: str, lost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit where they are exact, otherwise within the noise, which is drawn anew."""
    one, other = (opened(kind, rows, lost, monkeypatch) for rows in (NEAR, FAR))
    moved = np.abs(one[0].astype(np.int64) - other[0])[: one[2]]
    assert moved.max(initial=0) <= 2 * one_time.noise_units(CLIENTS)
    # The last remainders tell whether a number was no integer, and are then uniform.
    assert ((one[1] - other[1]) % np.array(residues.MODULI)[:, None] == 0)[:-1].all()
    flags = [exact[-1] % residues.MODULI[-1] == 0 for exact in (one[1], other[1])]
    assert (flags[0] == flags[1]).all()
    assert {k: repr(r) for k, r in one[3].content.metric_records.items()} == {
        k: repr(r) for k, r in other[3].content.metric_records.items()
    }
