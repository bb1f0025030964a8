"""The legacy interface: strategies of `flwr.server.strategy` under `flwr.server.workflow`."""

from __future__ import annotations

from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid

from ciphercohort.flower.plan import RANGE, Privacy, SumPlan
from ciphercohort.flower.rounds import LEAST_SHARE
from ciphercohort.flower.server import SecureGrid
from ciphercohort.flower.strategies import (
    check_failures,
    check_fractions,
    check_metrics,
    check_rounds,
    check_sums_only,
)


class SecureSumWorkflow:
    """In the place of Flower's `DefaultWorkflow`: the same rounds, with sums only.

        workflow = SecureSumWorkflow()
        workflow(grid, LegacyContext(context, config=…, strategy=FedAvg(initial_parameters=…)))

    Arguments as of `SecureSum`. Weights are the replies' `num_examples`. The strategy needs initial
    parameters: those of a random client would leave it in the clear.
    """

    def __init__(
        self,
        *,
        range: float = RANGE,
        examples: float | None = None,
        lost: float = 1 / 3,
        privacy: Privacy | None = None,
        means_only: bool = False,
        pinned: bool = False,
    ) -> None:
        self._least_share = 0.0 if pinned else LEAST_SHARE
        self._means_only = means_only
        self._plan = SumPlan.of(range, examples, lost, privacy)

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run all rounds.

        Raises:
            ParameterError: the context's strategy cannot take sums, or not for so many rounds.
        """
        from flwr.server.workflow import DefaultWorkflow

        legacy: Any = context
        check_sums_only(legacy.strategy)
        check_metrics(legacy.strategy, self._means_only)
        check_failures(legacy.strategy, self._plan.lost)
        kinds = {"fit": "clients", "evaluate": "clients"}
        check_fractions(legacy.strategy, self._plan.privacy, kinds, self._least_share)
        check_rounds(legacy.strategy, self._plan.privacy, legacy.config.num_rounds)
        DefaultWorkflow()(SecureGrid(grid, self._plan, least_share=self._least_share), context)
