"""Data and model: a small network on scikit-learn's digits."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Sequential):
    """Two convolutions and a linear layer, 10,000 parameters; hidden: units in between, if any."""

    def __init__(self, hidden):
        between = [nn.Linear(512, hidden), nn.ReLU()] if hidden else []
        super().__init__(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            *between,
            nn.Linear(hidden or 512, 10),
        )


def load_data(partition_id, num_partitions, batch_size):
    """Batches of one client: 80 % to train, 20 % to test."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    rows = np.array_split(order, num_partitions)[partition_id]
    x, y = torch.tensor(x[rows] / 16, dtype=torch.float32), torch.tensor(y[rows])
    cut = int(0.8 * len(rows))
    # The same order in every run, so that runs can be compared.
    generator = torch.Generator().manual_seed(partition_id)
    train = TensorDataset(x[:cut], y[:cut])
    return (
        DataLoader(train, batch_size, shuffle=True, generator=generator),
        DataLoader(TensorDataset(x[cut:], y[cut:]), batch_size),
    )


def fit(model, batches, epochs, learning_rate):
    """Train; the mean loss of the last epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    for _ in range(epochs):
        losses = []
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def score(model, batches):
    """Mean loss and accuracy."""
    outputs = [(model(x), y) for x, y in batches]
    z, y = (torch.cat(parts) for parts in zip(*outputs, strict=True))
    loss = nn.functional.cross_entropy(z, y).item()
    return loss, (z.argmax(1) == y).float().mean().item()
