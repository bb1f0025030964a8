"""Which strategies need sums only."""

from __future__ import annotations

from math import ceil
from typing import Any

from ciphercohort.flower.plan import Privacy
from protocols.aggregate.quorum import MIN_CLIENTS
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


def check_strategy(
    strategy: Any, privacy: Privacy | None, means_only: bool, least_share: float
) -> None:
    """Of the message interface, and sampling enough: what is known before a run.

    Raises:
        ParameterError: names field, value, bound and cure.
    """
    if isinstance(strategy, type):
        raise ParameterError(f"strategy={strategy.__name__} is a class: {strategy.__name__}(…)")
    if any(kind.__module__.startswith("flwr.server.strategy") for kind in type(strategy).__mro__):
        raise ParameterError(
            f"strategy={type(strategy).__name__} is of the legacy flwr.server.strategy: replace "
            "DefaultWorkflow() by SecureSumWorkflow(), or take it from flwr.serverapp.strategy"
        )
    check_sums_only(strategy)
    check_metrics(strategy, means_only)
    check_fractions(strategy, privacy, {"train": "nodes", "evaluate": "nodes"}, least_share)


def check_fractions(
    strategy: Any, privacy: Privacy | None, kinds: dict[str, str], least_share: float
) -> None:
    """That it samples as many as each of them wants.

    kinds: "train" or "fit", and "evaluate", with what their least number counts. With privacy
    nobody evaluates. least_share: of all clients.

    Raises:
        ParameterError: it never does.
    """
    for kind, counted in kinds.items():
        name = f"fraction_{kind}"
        fraction = getattr(strategy, name, 1.0)
        least = getattr(strategy, f"min_{kind}_{counted}", 0)
        asked = not (privacy and kind == "evaluate")
        if asked and 0 < fraction < least_share and least < MIN_CLIENTS:
            raise ParameterError(
                f"{name}={fraction:g} samples less than {least_share:g} of all clients, and each "
                f"of them refuses that: set it to {least_share:g} or more, or to 0; or give "
                "pinned=True, if every node has secure-sum-pins and secure-sum-min-clients"
            )


_METRICS = (
    *("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"),
    *("fit_metrics_aggregation_fn", "evaluate_metrics_aggregation_fn"),
)


def check_metrics(strategy: Any, means_only: bool) -> None:
    """Refuse functions of the app's own that join metrics: they would see one reply, the mean.

    means_only: the app says that they are weighted means.

    Raises:
        ParameterError: names the function.
    """
    for name in _METRICS:
        function = getattr(strategy, name, None)
        own = function is not None and not function.__module__.startswith("flwr.")
        if own and not means_only:
            raise ParameterError(
                f"{name}={getattr(function, '__name__', function)!r} would see one reply, the mean "
                "of all clients: a largest value or a count would come out wrong. If it is a "
                "weighted mean, give means_only=True; else name the metric on the clients, as "
                "SecureSumMod(largest=[…]), smallest or totals, and give means_only=True as well"
            )


def check_rounds(strategy: Any, privacy: Privacy | None, num_rounds: int) -> None:
    """That privacy lasts for a run in which each client is sampled as often as expected.

    Raises:
        ParameterError: it does not.
    """
    fraction = getattr(strategy, "fraction_train", getattr(strategy, "fraction_fit", 1.0))
    if privacy and num_rounds * fraction > privacy.rounds:
        raise ParameterError(
            f"num_rounds={num_rounds} with {fraction:g} of all clients exceeds the rounds="
            f"{privacy.rounds} of privacy: every client would refuse the rounds after these. Give "
            f"Privacy.for_rounds rounds={ceil(num_rounds * fraction)}"
        )


def check_failures(strategy: Any, lost: float) -> None:
    """Refuse one that wants no mean where a client failed, in rounds from which some may vanish.

    Raises:
        ParameterError: it would never see a failure.
    """
    if not getattr(strategy, "accept_failures", True) and lost:
        raise ParameterError(
            f"accept_failures=False with lost={lost:.3g}: the strategy sees the mean of those who "
            "stayed, and no failures. Give SecureSumWorkflow lost=0: nothing opens unless all "
            "contribute"
        )
