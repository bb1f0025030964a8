"""The ClientApp's side: `ClientApp(mods=[secure_sum_mod])`, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Context, Message

from ciphercohort.flower.client import AppFunction, Client
from ciphercohort.flower.plan import SumPlan, check_number
from protocols.errors import ParameterError, PolicyError

_SUMMED = ("train", "evaluate", "query")


class SecureSumMod:
    """A Flower mod: replies to train, evaluate and query leave as parts of secure sums only.

    privacy: whether a plan without noise is refused; max_epsilon, max_delta: the largest of a plan
    that this client takes part in; max_lost: share of a round's clients that may vanish, at most;
    weighted_by: the metric that weighs a reply: a plan that names another one is refused. largest,
    smallest, totals: metrics of which the server gets the largest or smallest of all clients (three
    digits), or the exact sum, in place of the mean.

    Put it first in `mods`: other mods then work on the plain message and reply, inside.

    Raises:
        ParameterError: a field is out of range.
    """

    def __init__(
        self,
        *,
        privacy: bool = False,
        max_epsilon: float | None = None,
        max_delta: float = 1e-4,
        max_lost: float = 1 / 3,
        weighted_by: str = "num-examples",
        largest: Iterable[str] = (),
        smallest: Iterable[str] = (),
        totals: Iterable[str] = (),
    ) -> None:
        if type(privacy) is not bool:
            raise ParameterError(f"privacy={privacy!r} is neither True nor False")
        if max_epsilon is not None:
            check_number("max_epsilon", max_epsilon, above=0)
        check_number("max_delta", max_delta, above=0, below=1)
        check_number("max_lost", max_lost, least=0, below=0.5)
        if not isinstance(weighted_by, str):
            raise ParameterError(f"weighted_by={weighted_by!r} is no name of a metric")
        self._privacy, self._max_epsilon = privacy or max_epsilon is not None, max_epsilon
        self._max_delta, self._max_lost = max_delta, max_lost
        self._weighted_by = weighted_by
        self._statistics = {weighted_by: ""}
        for kind, names in {"max": largest, "min": smallest, "sum": totals}.items():
            for name in [names] if isinstance(names, str) else names:
                if self._statistics.setdefault(name, kind) != kind:
                    raise ParameterError(f"{name!r} is named twice, or weighs replies")

    def __call__(self, message: Message, context: Context, call_next: AppFunction) -> Message:
        """Answer a message."""
        kind = message.metadata.message_type.split(".")[0]
        if kind in _SUMMED:
            client = Client(message, context, call_next, self._require, self._statistics)
            return client.answer()
        if kind == "reconnect":
            return call_next(message, context)
        raise PolicyError(
            f"a reply to {kind!r} would leave in the clear: give the strategy initial parameters, "
            "and ask for other figures by a query through ciphercohort.flower.SecureGrid"
        )

    def _require(self, plan: SumPlan) -> None:
        if plan.weighted_by != self._weighted_by:
            raise PolicyError(
                f"the plan weighs by {plan.weighted_by!r} and this client by "
                f"{self._weighted_by!r}: give SecureSumMod(weighted_by=…) the strategy's own"
            )
        if plan.lost > self._max_lost + 1e-9:
            raise PolicyError(f"lost={plan.lost:.3g} exceeds max_lost={self._max_lost:.3g}")
        if not self._privacy:
            return
        if plan.privacy is None:
            raise PolicyError("the plan has no noise, and this client wants privacy")
        if self._max_epsilon is not None and plan.privacy.epsilon > self._max_epsilon:
            raise PolicyError(
                f"epsilon={plan.privacy.epsilon:g} of the plan exceeds "
                f"max_epsilon={self._max_epsilon:g}"
            )
        if plan.privacy.delta > self._max_delta:
            raise PolicyError(
                f"delta={plan.privacy.delta:g} of the plan exceeds max_delta={self._max_delta:g}"
            )


secure_sum_mod = SecureSumMod()
"""With the usual requirements."""
