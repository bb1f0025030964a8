"""Step `finish`: everyone learns what was released, and the transcript's head before it.

finish -> {shape, transcript} | weights: float64, little-endian        <- {}
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import MessageError, ProtocolError
from protocols.exchange import Body

MOST_AXES = 2


def told(weights: NDArray[np.float64], transcript: str) -> Body:
    """The request, to everyone alike; weights: shape (d,) or (d, outputs).

    Raises:
        ProtocolError: a weight is not finite.
    """
    if not np.isfinite(weights).all():
        raise ProtocolError("a released weight is not finite: the training has diverged")
    meta = {"shape": list(weights.shape), "transcript": transcript}
    return Body(meta, (np.asarray(weights, "<f8").tobytes(),))


def weights_of(request: Body) -> NDArray[np.float64]:
    """What was released, shape (d,) or (d, outputs).

    Raises:
        MessageError: the request holds no such numbers.
    """
    shape: Any = request.meta.get("shape")
    sizes = isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape)
    if not sizes or not 0 < len(shape) <= MOST_AXES or len(request.blobs) != 1:
        raise MessageError("the request does not say which numbers are released")
    if len(request.blobs[0]) != 8 * int(np.prod(shape, dtype=object)):
        raise MessageError(f"the released numbers are not of shape {shape}")
    found = np.frombuffer(request.blobs[0], "<f8").astype(np.float64).reshape(shape)
    if not np.isfinite(found).all():
        raise MessageError("a released number is not finite")
    return found
