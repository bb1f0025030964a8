"""A hospital: opacus has the gradient of every record, the mod clips, adds noise and encrypts."""

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from opacus import GradSampleModule

from ciphercohort.flower import SecureSumMod, lot
from private_digits.task import load_rows, new_network

app = ClientApp(mods=[SecureSumMod(privacy=True, max_epsilon=4.0)])


@app.train()
def train(message, context):
    """What each record of the lot would change, one row for each."""
    network = new_network()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = load_rows(context)
    chosen = torch.from_numpy(lot(len(labels)))  # by secret coins
    by_record = GradSampleModule(network, loss_reduction="sum")
    loss = torch.nn.functional.cross_entropy(
        by_record(images[chosen]), labels[chosen], reduction="sum"
    )
    loss.backward()
    changes = {name: -weights.grad_sample for name, weights in network.named_parameters()}
    metrics = MetricRecord({"num-examples": 1})  # Flower wants a weight; it does not leave
    reply = {"arrays": ArrayRecord(changes), "metrics": metrics}
    return Message(RecordDict(reply), reply_to=message)
