"""SecretFlow SPU: the same training on secret shares, protocol SEMI2K, all parties in a process.

Runs by itself, in an interpreter that has SPU: `python spu_training.py < shape.json`. Full batches,
the sigmoid's polynomial, shares of 64 bits. SEMI2K needs correlated randomness, and here one party
deals it: whoever holds its seed reads every row. That is another promise than ours. Seconds are the
slope over the iterations, so that sharing the rows and compiling are left out.
"""

import json
import sys
import time
from typing import Any

ITERATIONS = 2, 6
RATE = 1.0


def measure(rows: int, features: int, parties: int, coefficients: list[float]) -> dict[str, object]:
    """Seconds an iteration, and the largest difference of a weight to NumPy's; random rows."""
    import numpy as np
    import spu
    import spu.utils.simulation as simulation

    rng = np.random.default_rng(rows)
    x = (rng.uniform(-1, 1, (rows, features)) / np.sqrt(features)).astype(np.float32)
    y = rng.integers(0, 2, rows).astype(np.float32)
    config = spu.RuntimeConfig(protocol=spu.ProtocolKind.SEMI2K, field=spu.FieldType.FM64)
    simulator = simulation.Simulator(parties, config)

    def train(x: Any, y: Any, rounds: int) -> Any:
        w = 0 * x[0]
        for _ in range(rounds):
            z = x @ w
            square, p = z * z, 0 * z
            for c in reversed(coefficients[1::2]):
                p = p * square + c
            w = w - RATE * ((coefficients[0] + p * z - y) @ x) / rows
        return w

    def seconds(rounds: int) -> tuple[float, Any]:
        run = simulation.sim_jax(simulator, lambda x, y: train(x, y, rounds))
        run(x, y)  # compiles
        started = time.perf_counter()
        found = run(x, y)
        return time.perf_counter() - started, np.asarray(found)

    (first, _), (last, found) = map(seconds, ITERATIONS)
    exact = train(x.astype(np.float64), y.astype(np.float64), ITERATIONS[1])
    slope = (last - first) / (ITERATIONS[1] - ITERATIONS[0])
    return {
        "iteration": slope,
        "difference": float(np.abs(found - exact).max()),
        "version": spu.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(measure(**json.load(sys.stdin))))
