"""Which strategies need sums only."""

from __future__ import annotations

from typing import Any

from protocols.errors import ParameterError

# By class name, as Flower spells it in both of its interfaces.
SUMS = {
    *("FedAvg", "FedProx", "FedAvgM"),
    *("FedOpt", "FedAdam", "FedAdagrad", "FedYogi"),
}
_EACH = "it looks at every client's update on its own, and a secure sum opens the mean only"
_REASONS = {
    "FedMedian": f"a median is no sum: {_EACH}",
    "FedTrimmedAvg": f"a trimmed mean is no sum: {_EACH}",
    "Krum": f"it picks one update by its distances to the others: {_EACH}",
    "MultiKrum": f"it picks updates by their distances to the others: {_EACH}",
    "Bulyan": f"it picks updates by their distances to the others: {_EACH}",
    "QFedAvg": "it weighs each update by that client's own loss, which the server may not see",
    "FaultTolerantFedAvg": "it counts replies; a secure sum has its own rule, `lost`",
    "FedAvgAndroid": "its clients are no ClientApps, so no mod can encrypt what they send",
    "FedXgbBagging": "it joins the clients' trees, which are no numbers to add",
    "FedXgbCyclic": "it passes one client's trees to the next",
    "FedXgbNnAvg": "it passes the clients' trees to everybody",
}
_PRIVATE = (
    "it clips or adds noise for single clients: use SecureSum(FedAvg(), privacy=Privacy(…)), "
    "whose noise no server can take out of a sum"
)


def check_sums_only(strategy: Any) -> None:
    """Refuse a strategy that is no function of the mean.

    A class of one's own passes where it extends one that needs the mean only; what it overrides
    sees one reply, the mean, with the weight of all clients.

    Raises:
        ParameterError: names the strategy and the reason.
    """
    for kind in type(strategy).__mro__:
        if not kind.__module__.startswith("flwr."):
            continue
        name = kind.__name__
        if name in SUMS:
            return
        private = name.startswith(("DifferentialPrivacy", "DPFedAvg"))
        reason = _PRIVATE if private else _REASONS.get(name, f"nobody has checked it: {_EACH}")
        raise ParameterError(f"strategy={name} cannot take secure sums: {reason}")
    raise ParameterError(
        f"strategy={type(strategy).__name__} is none of Flower's: extend one of "
        f"{', '.join(sorted(SUMS))}"
    )
