"""The server of the digits app."""

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import SecureSum
from torch_digits.task import Net

app = ServerApp()


def initial_arrays(context):
    """The model before the first round."""
    torch.manual_seed(0)
    return ArrayRecord(Net(context.run_config["hidden-units"]).state_dict())


@app.main()
def main(grid, context):
    """Some rounds of federated averaging."""
    strategy = SecureSum(FedAvg())
    result = strategy.start(
        grid=grid,
        initial_arrays=initial_arrays(context),
        num_rounds=context.run_config["num-server-rounds"],
    )
    if context.run_config["out"]:
        np.savez(context.run_config["out"], *result.arrays.to_numpy_ndarrays())
