"""The network and the digits: four fifths are the hospitals', the rest is the server's."""

import torch
from sklearn.datasets import load_digits

TRAINED_ON = 1437


def new_network():
    """Of 650 values, all 0: whoever starts has the same."""
    network = torch.nn.Linear(64, 10)
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    return network


def _rows(which):
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[which]
    return torch.tensor(images / 16 - 0.3, dtype=torch.float32)[order], torch.tensor(labels)[order]


def load_rows(context):
    """Those of one hospital."""
    first, step = (int(context.node_config[k]) for k in ("partition-id", "num-partitions"))
    return _rows(slice(first, TRAINED_ON, step))


def accuracy(network):
    """On rows that no hospital has."""
    images, labels = _rows(slice(TRAINED_ON, None))
    with torch.no_grad():
        return (network(images).argmax(1) == labels).float().mean().item()
