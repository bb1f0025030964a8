"""Everyone in one process: simulation, data sets, baselines, reports, the command ``cohort``.

`sims.FederatedLogisticRegression` and `sims.FederatedRegression` are loaded when they are asked
for, so that this import stays light.
"""

from importlib import import_module
from typing import Any

from protocols.platform import guard

guard()

__all__ = ["FederatedLogisticRegression", "FederatedRegression"]

_LAZY = {
    "FederatedLogisticRegression": "sims.estimator",
    "FederatedRegression": "sims.regression",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """List the names that are loaded on demand as well."""
    return sorted({*globals(), *_LAZY})
