"""`cohort simulate` and `cohort plan` as functions: their options, defaults and refusals.

The commands read their options and call what is here. Libraries load when a function is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ciphercohort.job.config import configured
from ciphercohort.job.options import PlanOptions, SimulateOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ciphercohort.planning.forecast import Forecast
    from ciphercohort.results.result import RunResult
    from sims.simulation import OnEvent


def simulate(on_event: OnEvent | None = None, **options: Unpack[SimulateOptions]) -> RunResult:
    """Train one model on the rows of several parties, all simulated on this machine.

    Without `data` it uses a data set that scikit-learn ships; epsilon = 1 unless another promise
    or `no_privacy=True` is given.

    Args:
        on_event: is told of phases and progress.
        options: of `cohort simulate --help`, by name; data: a path, a pandas frame, or arrays
            (X, y).

    Returns:
        Weights, scores, the plaintext twin, plan, costs.

    Raises:
        CohortError: an option or the data are refused before any key is made; the message names
            field, value and cure. Or the protocol was aborted.
    """
    config = configured(**options)
    from sims.simulation import simulate as run

    return run(config, on_event)


def plan(
    *,
    rows: int | None = None,
    features: int | None = None,
    norm_bound: float | None = None,
    classes: int | None = None,
    timing: bool = True,
    rehearse: bool = False,
    **options: Unpack[PlanOptions],
) -> Forecast:
    """What a run would promise and cost; nothing is encrypted.

    Args:
        rows: training rows of all parties; with features the shape in place of `data`.
        features: columns without the bias.
        norm_bound: public bound on every row's norm [1].
        classes: of the label, of models softmax and one-vs-rest.
        timing: rehearse what this machine has not rehearsed yet; without it seconds, bytes and
            memory are those of a rehearsal that is there, or missing.
        rehearse: do so whatever this machine knows.
        options: of `cohort plan --help`, by name.

    Returns:
        Setting, plan, epsilon by coalition, seconds, bytes and memory.

    Raises:
        PrivacyError: no certified setting exists; the message names the condition that binds.
        CohortError: an option or the data are refused.
    """
    config = configured("plan", **options)
    from ciphercohort.planning.forecast import forecast
    from sims.shape import shape_asked

    shape = shape_asked(config, rows, features, norm_bound, classes)
    return forecast(*shape, timing=timing, again=rehearse)
