"""The small fixed benchmark that two revisions are compared by: `python fixed.py`, one number.

Uses few names of the project, all old, so that it runs in an old tree: PYTHONPATH names the tree.
Prints the median seconds of the coordinator's circuit in one iteration of gradient descent, on two
data ciphertexts, with one single-party key. No refresh: where a tree leaves the sum over columns to
it, that sum is not part of the figure, and a tree that makes it in the circuit pays for it.
"""

import json
import os
import statistics
import sys
import time
from typing import Any

import numpy as np

from protocols.ckks import objects


def main(ring_dim: int, repetitions: int) -> float:
    """Seconds per iteration, after one that warms up."""
    from protocols.ckks.circuits import rows as circuit
    from protocols.ckks.circuits.choice import choose_parameters
    from protocols.ckks.circuits.evaluator import Evaluator
    from protocols.ckks.circuits.packing import Layout
    from protocols.ckks.evaluation import CkksContext
    from protocols.numerics.approximation import sigmoid_approximation

    link = sigmoid_approximation(7, 8.0).polynomial
    secure = ring_dim >= 32768
    params = choose_parameters(circuit.gradient_levels(link), secure=secure, ring_dim=ring_dim)
    columns = params.num_slots // 16
    layout = Layout(
        num_slots=params.num_slots,
        num_features=10,
        rows_by_party=(2 * columns,),
        rounds=repetitions + 2,
    )
    context = CkksContext(params, "fixed")
    keys = context.cc.KeyGen()
    context.cc.EvalMultKeyGen(keys.secretKey)
    context.cc.EvalRotateKeyGen(keys.secretKey, list(layout.rotations))
    evaluator = Evaluator(context, layout)
    values = np.random.default_rng(0).uniform(-0.1, 0.1, params.num_slots)
    rows, side, weights = (
        [evaluator.wrap(objects.encrypt(context, keys.publicKey, values)) for _ in range(count)]
        for count in (2, layout.num_side_ciphertexts, 1)
    )
    # Old trees: no units of rows, and fresh weights at level 0.
    units: Any = circuit.RowUnits.of(link, 0.1) if hasattr(circuit, "RowUnits") else link
    start = evaluator.drop_to(weights[0], getattr(circuit, "REFRESH_LEVEL", 0))
    gradient = circuit.EncryptedGradient(evaluator, units, rows, side)
    # As `--cpu` asks, for a busy machine.
    clock = time.process_time if os.environ.get("COHORT_BENCHMARK_CPU") else time.perf_counter
    laps = []
    for _ in range(repetitions + 1):
        started = clock()
        moved = start - gradient(start, 0.1)
        if hasattr(moved, "spread"):
            moved.spread()
        laps.append(clock() - started)
    return statistics.median(laps[1:])


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
