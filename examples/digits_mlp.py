"""A small torch network on scikit-learn's digits, trained by five parties with secure aggregation.

    python examples/digits_mlp.py
    python examples/digits_mlp.py --epsilon 2 --rounds 60

Prints the accuracy with and without encryption (the same noise, so only the encryption differs) and
the privacy loss from the parties' ledgers beside Opacus' own accountant. Needs the extra `torch`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial

import numpy as np
import torch
from opacus.accountants import PRVAccountant
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from ciphercohort.estimators.torch_training import FederatedModule
from parties.reader.tensor_shard import TensorSchema, TensorShard
from protocols.updates.momentum import GradientDescent

PARTIES = 5
SCHEMA = TensorSchema(shape=(64,), classes=10)
SEED = 20261121
row_loss = partial(nn.functional.cross_entropy, reduction="none")


def make_module() -> nn.Module:
    """64 pixels, 32 hidden units, 10 digits; the same start everywhere."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def main() -> int:
    """Train, compare; 1 if encryption changed a prediction, or the accountants disagree."""
    options = arguments()
    torch.set_num_threads(1)  # the steps are small: more threads cost time
    shards, test_x, test_y = digits()
    model = FederatedModule(
        make_module,
        row_loss,
        update=GradientDescent(rounds=options.rounds, learning_rate=options.learning_rate),
        clip=options.clip,
        epsilon=options.epsilon,
        delta=options.delta,
    )
    began = time.monotonic()
    model.fit(shards)
    seconds = time.monotonic() - began
    twin = model.twin(shards)
    encrypted, plain = model.score(test_x, test_y), model.score(test_x, test_y, twin)
    difference = float(np.abs(model.weights_ - twin).max())
    theirs = opacus_epsilon(model, options)
    sizes = ", ".join(str(shard.rows) for shard in shards.values())
    print(
        f"{model.weights_.size} parameters, {PARTIES} parties of {sizes} rows, "
        f"{options.rounds} rounds in {seconds:.1f} s"
    )
    print(f"test accuracy, encrypted:     {encrypted:.4f}")
    print(f"test accuracy, not encrypted: {plain:.4f}   (the same noise)")
    print(f"largest difference of a weight: {difference:.2g}")
    print(f"epsilon from the ledgers: {model.epsilon_:.4f} at delta={options.delta:g}")
    print(f"epsilon by Opacus (PRV):  {theirs:.4f}   ({theirs / model.epsilon_ - 1:+.2%})")
    agree = encrypted == plain and difference <= 1e-4
    return 0 if agree and abs(theirs / model.epsilon_ - 1) <= 0.02 else 1


def arguments() -> argparse.Namespace:
    """Options of this script."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epsilon", type=float, default=4.0, help="privacy loss of all rounds")
    parser.add_argument("--delta", type=float, default=1e-4)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--clip", type=float, default=1.0, help="bound on one row's gradient")
    parser.add_argument("--learning-rate", type=float, default=2.0)
    return parser.parse_args()


def digits() -> tuple[dict[str, TensorShard], np.ndarray, np.ndarray]:
    """Five parties of unequal size, and the rows held out."""
    x, y = load_digits(return_X_y=True)
    x, test_x, y, test_y = train_test_split(x / 16, y, test_size=0.2, random_state=SEED)
    ends = (len(x) * np.array([0.1, 0.25, 0.45, 0.7])).astype(int)
    parts = zip(np.split(x, ends), np.split(y, ends), strict=True)
    shards = {
        f"clinic-{k + 1}": TensorShard(inputs=a, labels=b, schema=SCHEMA)
        for k, (a, b) in enumerate(parts)
    }
    return shards, test_x, test_y


def opacus_epsilon(model: FederatedModule, options: argparse.Namespace) -> float:
    """Opacus on the same releases, in the convention of the ledgers.

    Opacus' noise multiplier is std / sensitivity, where a row is added or removed; replacing a row
    moves the sum twice as far. In a full batch nothing else differs, so its multiplier for
    replace-one is std / (2 clip), std on the sum over rows.
    """
    rows = model.plan_.num_rows
    accountant = PRVAccountant()
    multiplier = model.plan_.privacy.sigma * rows / (2 * options.clip)
    accountant.history = [(multiplier, 1.0, options.rounds)]
    # Opacus takes log(1 - q) at q = 1, and a rough bound for the range of its grid.
    with np.errstate(divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return float(accountant.get_epsilon(options.delta, eps_error=model.epsilon_ / 1000))


if __name__ == "__main__":
    raise SystemExit(main())
