"""Small torch tasks for tests; module-level, so that spawned processes find them by name."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from parties.reader.tensor_shard import TensorSchema, TensorShard

SCHEMA = TensorSchema(shape=(6,), classes=3)
IMAGES = TensorSchema(shape=(1, 6, 6), classes=3)


def row_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def make_mlp() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def make_convolution() -> nn.Module:
    """A shared layer, a normalisation, a frozen parameter and one that nothing uses."""
    with torch.random.fork_rng():
        torch.manual_seed(6)
        return Convolution()


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3)
        self.norm = nn.GroupNorm(2, 2)
        self.frozen = nn.Linear(32, 8)
        self.last = nn.Linear(8, 3)
        self.unused = nn.Linear(2, 2)
        for p in self.frozen.parameters():
            p.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(x))).flatten(1)
        return self.last(torch.tanh(self.frozen(hidden)))


class Dropping(nn.Module):
    """Random without a dropout layer."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.dropout(x, 0.5, self.training))


class Mixing(nn.Module):
    """Every row sees the batch's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x - x.mean(dim=0))


def data(rows: int, schema: TensorSchema = SCHEMA, seed: int = 0) -> TensorShard:
    rng = np.random.default_rng([seed, rows])
    inputs = rng.normal(size=(rows, *schema.shape)).astype(np.float32)
    labels = (inputs.reshape(rows, -1)[:, 0] > 0).astype(int) + (rng.random(rows) < 0.2)
    return TensorShard(inputs=inputs, labels=labels, schema=schema)


def pooled(shards: dict[str, TensorShard]) -> TensorShard:
    parts = list(shards.values())
    return TensorShard(
        inputs=np.concatenate([part.inputs for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        schema=parts[0].schema,
    )
