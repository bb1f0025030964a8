"""One client of the digits app."""

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ciphercohort.flower import secure_sum_mod
from torch_digits.task import Net, fit, load_data, score

app = ClientApp(mods=[secure_sum_mod])


def start(msg, context):
    """The model as the server sent it, and this client's batches."""
    node, run = context.node_config, context.run_config
    model = Net(run["hidden-units"])
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    return model, load_data(node["partition-id"], node["num-partitions"], run["batch-size"])


@app.train()
def train(msg, context):
    """Some epochs on this client's rows."""
    model, (batches, _) = start(msg, context)
    run = context.run_config
    loss = fit(model, batches, run["local-epochs"], run["learning-rate"])
    metrics = MetricRecord({"num-examples": len(batches.dataset), "train_loss": loss})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=msg)


@app.evaluate()
def evaluate(msg, context):
    """Loss and accuracy on rows that were not trained on."""
    model, (_, batches) = start(msg, context)
    loss, accuracy = score(model, batches)
    examples = len(batches.dataset)
    metrics = MetricRecord({"num-examples": examples, "loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
