"""One client of the digits app."""

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from ciphercohort.flower import secure_sum_mod
from sklearn_digits.task import CLASSES, fit, load_data, model_of

app = ClientApp(mods=[secure_sum_mod])


def rows_of(context):
    """This client's rows."""
    return load_data(context.node_config["partition-id"], context.node_config["num-partitions"])


@app.train()
def train(msg, context):
    """A few iterations on this client's rows."""
    (x, y), _ = rows_of(context)
    arrays = msg.content["arrays"].to_numpy_ndarrays()
    arrays = fit(arrays, x, y, context.run_config["local-epochs"])
    loss = log_loss(y, model_of(arrays).predict_proba(x), labels=range(CLASSES))
    metrics = MetricRecord({"num-examples": len(y), "train_loss": loss})
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
    return Message(content, reply_to=msg)


@app.evaluate()
def evaluate(msg, context):
    """Loss and accuracy on rows that were not trained on."""
    _, (x, y) = rows_of(context)
    model = model_of(msg.content["arrays"].to_numpy_ndarrays())
    loss = log_loss(y, model.predict_proba(x), labels=range(CLASSES))
    accuracy = float(model.score(x, y))
    metrics = MetricRecord({"num-examples": len(y), "loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
