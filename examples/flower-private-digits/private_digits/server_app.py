"""The server: gets the sum of all hospitals' clipped gradients, with their noise."""

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvgM

from ciphercohort.flower import Privacy, SecureSum
from private_digits.task import TRAINED_ON, accuracy, new_network

app = ServerApp()


def evaluate(server_round, arrays):
    """On the server's own rows."""
    network = new_network()
    network.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(network)})


@app.main()
def main(grid, context):
    """One step of gradient descent with momentum in a round."""
    config = context.run_config
    rounds = config["num-server-rounds"]
    privacy = Privacy.for_rounds(
        epsilon=config["epsilon"],
        delta=config["delta"],
        rounds=rounds,
        clip=config["clip"],
        sampling=config["sampling"],
        records=TRAINED_ON,
    )
    strategy = FedAvgM(
        fraction_evaluate=0.0,
        server_learning_rate=config["learning-rate"],
        server_momentum=config["momentum"],
    )
    result = SecureSum(strategy, privacy=privacy).start(
        grid=grid,
        initial_arrays=ArrayRecord(new_network().state_dict()),
        num_rounds=rounds,
        evaluate_fn=evaluate,
    )
    if config["out"]:
        np.savez(config["out"], **{name: array.numpy() for name, array in result.arrays.items()})
