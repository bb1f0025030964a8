"""DP-SGD by Opacus, as a backend of `sims.lab.baselines`: the same algorithm in code of others.

Importing this module registers it: `BACKENDS["opacus"]`. Per-row gradients, clipping, noise,
averaging and Poisson batches are Opacus' own; the ridge term is SGD's weight decay, which acts
after the noise, as in `sims.lab.baselines.dp_sgd`. Opacus divides by |g| + 1e-6 where it clips.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import Tensor, nn

from sims.lab.baselines import BACKENDS, Array, DpSgd


def dp_sgd_opacus(plan: DpSgd, x: Array, y: Array, std: float, rng: np.random.Generator) -> Array:
    """As `sims.lab.baselines.dp_sgd`, float64; std: on the sum of a round; shape (d,)."""
    linear = nn.Linear(x.shape[1], 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(linear.weight)
    module: Any = GradSampleModule(linear, loss_reduction="mean")
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=plan.rate, weight_decay=plan.lam),
        noise_multiplier=std / plan.clip,
        max_grad_norm=plan.clip,
        expected_batch_size=len(x) / plan.batches,
        loss_reduction="mean",
        generator=_generator(rng),
    )
    sampler = UniformWithReplacementSampler(
        num_samples=len(x),
        sample_rate=1.0 / plan.batches,
        generator=_generator(rng),
        steps=plan.rounds,
    )
    rows, labels = torch.tensor(x), torch.tensor(y)
    with warnings.catch_warnings():
        # Inputs need no gradient: torch warns that the layer's hook sees outputs only.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for batch in sampler:
            optimizer.zero_grad()
            _mean_loss(plan, module(rows[batch])[:, 0], labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    weights: Array = linear.weight.detach().numpy()[0].copy()
    return weights


def _mean_loss(plan: DpSgd, z: Tensor, y: Tensor) -> Tensor:
    if plan.loss == "ridge":
        return ((z - y) ** 2 / 2).mean()
    return nn.functional.softplus(-y * z).mean()


def _generator(rng: np.random.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(rng.integers(1 << 62)))


BACKENDS["opacus"] = dp_sgd_opacus
