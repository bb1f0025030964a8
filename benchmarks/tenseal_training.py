"""(c) TenSEAL's tutorial "Logistic regression on encrypted data", a few samples of one epoch.

Runs by itself, in an interpreter that has TenSEAL: `python tenseal_training.py < shape.json`. As in
the tutorial: one ciphertext per sample, sigmoid of degree 3, ring 2^13 with 206 bits of modulus
(128-bit security), and ONE key, whose holder decrypts the weights and encrypts them afresh after
every epoch. That is another promise than ours: the figure says what the arithmetic costs.
"""

import json
import statistics
import sys
import time

SAMPLES = 8
MODULUS = [40, 21, 21, 21, 21, 21, 21, 40]


def measure(features: int) -> dict[str, object]:
    """Seconds per sample, and per epoch beside the samples, for random rows."""
    import numpy as np
    import tenseal as ts

    context = ts.context(ts.SCHEME_TYPE.CKKS, 8192, -1, MODULUS)
    context.global_scale = 2**21
    context.generate_galois_keys()
    rng = np.random.default_rng(features)
    rows = rng.uniform(-1, 1, (SAMPLES, features)) / np.sqrt(features)
    labels = [[float(v)] for v in rng.integers(0, 2, SAMPLES)]
    xs = [ts.ckks_vector(context, row.tolist()) for row in rows]
    ys = [ts.ckks_vector(context, y) for y in labels]
    weights = ts.ckks_vector(context, [0.1] * features)
    bias = ts.ckks_vector(context, [0.1])
    total, shift, laps = 0, 0, []
    for x, y in zip(xs, ys, strict=True):
        started = time.perf_counter()
        out = (x.dot(weights) + bias).polyval([0.5, 0.197, 0, -0.004])
        difference = out - y
        total = total + x * difference
        shift = shift + difference
        laps.append(time.perf_counter() - started)
    started = time.perf_counter()
    weights -= total * (1 / SAMPLES) + weights * 0.05
    bias -= shift * (1 / SAMPLES)
    ts.ckks_vector(context, weights.decrypt())
    ts.ckks_vector(context, bias.decrypt())
    epoch = time.perf_counter() - started
    return {"sample": statistics.median(laps), "epoch": epoch, "version": ts.__version__}


if __name__ == "__main__":
    print(json.dumps(measure(json.load(sys.stdin)["features"])))
