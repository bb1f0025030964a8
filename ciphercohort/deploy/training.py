"""A training across machines, from its first session to the exact sums that end it."""

from __future__ import annotations

from collections.abc import Callable

from ciphercohort.deploy.deployed import (
    DeployedRun,
    ends_at_maximum,
    goes_on_by,
    is_first,
    run_of,
    sums_begun,
    training_of,
    whitened_after,
)
from ciphercohort.deploy.inference import Drive, Tell, infer_deployed
from ciphercohort.deploy.results import DifferingSumsError, finished_run
from coordinator.settings import Settings
from protocols.errors import CohortError, ParameterError


def trained(
    settings: Settings,
    session: str | None,
    begin: Callable[[str | None], str],
    see: Drive,
    tell: Tell,
) -> DeployedRun:
    """Train, with the exact sums that end a training at its maximum, where one does.

    session: to go on with, of a training or of its exact sums; None: a new one. begin: makes the
    session that comes after the given one, None: the first; see: sees one through.

    Raises:
        ParameterError: the session is of another command, or none. CohortError: of `see`.
    """
    name = training_of(settings, session) if session else begin(None)
    if name is None:
        raise ParameterError(
            f"session {session} is of no training: go on with it by "
            f"{goes_on_by(settings, str(session))}"
        )
    sums = session if session != name else None
    see(name)
    if is_first(settings, name):
        name = whitened_after(settings, name) or begin(name)
        tell("the second moment is summed; training follows on whitened rows")
        see(name)
    run = _finished(settings, name, tell)
    if run.model.view or not ends_at_maximum(settings, run.plan):
        return run
    tell("exact sums at the trained model follow, which end at the maximum likelihood")
    first = sums or sums_begun(settings, run.plan)
    try:
        infer_deployed(settings, run.model, see, epsilon=None, first=first)
    except CohortError as error:
        again = f"cohort coordinator run {settings.folder} --session {name}"
        tell(f"the model stays as trained: {error}; to ask for these sums again: {again}")
        return run
    return _finished(settings, name, tell)


def _finished(settings: Settings, session: str, tell: Tell) -> DeployedRun:
    """Its documents as they can be told; a run that has finished is never lost."""
    try:
        return finished_run(settings, session)
    except DifferingSumsError as error:
        tell(f"session {session} stays as it is: {error}")
        return run_of(settings, session)
