"""Steps that protocols share; what they go on from in another process.

That is, values of the fields that a STATE names. Whoever writes them down seals them: there are
secrets among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def state_of(thing: Any) -> list[Any]:
    """Values of its fields; of those that have such fields themselves, theirs."""
    values = (getattr(thing, name) for name in thing.STATE)
    return [state_of(value) if hasattr(value, "STATE") else value for value in values]


def restore(thing: Any, state: list[Any]) -> None:
    """Inverse of `state_of`; what has fields itself is there already."""
    for name, value in zip(thing.STATE, state, strict=True):
        own = getattr(thing, name)
        if hasattr(own, "STATE"):
            restore(own, value)
        else:
            # What was read is not to be written to; secrets are erased in place.
            setattr(thing, name, value.copy() if isinstance(value, np.ndarray) else value)
