"""Federated, encrypted, differentially private regression: what a user calls.

    from ciphercohort import load_model, simulate
    result = simulate(data="patients.csv", label="died", epsilon=1.0, out="runs/died")
    load_model("runs/died").predict("new.csv")

A name is loaded when it is asked for, so that this import stays light; `__init__.pyi` has the
types.
"""

from importlib import import_module, metadata

from protocols.platform import guard

_HOMES = {
    "Coordinator": "ciphercohort.deploy.coordinator",
    "FederatedLogisticRegression": "ciphercohort.estimators.logistic",
    "FederatedRegression": "ciphercohort.estimators.regression",
    "Party": "ciphercohort.deploy.party",
    "client_app": "parties.flower_site",
    "evaluate": "sims.evaluation",
    "load_model": "ciphercohort.results.predict",
    "plan": "sims.api",
    "server_app": "ciphercohort.deploy.flower_job",
    "simulate": "sims.api",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # `ciphercohort.flower` needs no OpenFHE and loads anywhere.
    guard()
    return getattr(import_module(_HOMES[name]), name)


def _version() -> str:
    try:
        return metadata.version("ciphercohort")
    except metadata.PackageNotFoundError:  # secure sums for Flower apps alone
        return metadata.version("ciphercohort-flower")


def __dir__() -> list[str]:
    """List the names that are loaded on demand as well."""
    return sorted({*globals(), *__all__})
