"""A hospital's half: statistics of its rows, in the order in which they are asked for."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ciphercohort.flower import secure_sum_mod
from survival.task import events_of, load_rows, moments, risk_sums, standardised

app = ClientApp(mods=[secure_sum_mod])


def rows_of(message: Message, context: Context) -> Any:
    """This hospital's rows, standardised as the server says."""
    sent = message.content.array_records["scale"]
    rows = load_rows(int(context.node_config["partition-id"]))
    return standardised(rows, sent["mean"].numpy(), sent["std"].numpy())


def reply(message: Message, statistics: dict[str, Any]) -> Message:
    """All of them."""
    arrays = {name: Array(np.asarray(value)) for name, value in statistics.items()}
    return Message(RecordDict({"sums": ArrayRecord(arrays)}), reply_to=message)


@app.query("moments")
def query_moments(message: Message, context: Context) -> Message:
    """For the scale of the columns."""
    return reply(message, moments(load_rows(int(context.node_config["partition-id"]))))


@app.query("events")
def query_events(message: Message, context: Context) -> Message:
    """When something happened."""
    days = int(context.run_config["days"])
    return reply(message, events_of(rows_of(message, context), days))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Sums over those at risk, for a step of Newton's."""
    sent = message.content.array_records["step"]
    rows = rows_of(message, context)
    return reply(message, risk_sums(rows, sent["times"].numpy(), sent["beta"].numpy()))
