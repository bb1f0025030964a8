"""Private sums in the books of Flower's own accountants (`flwr.serverapp`, from 1.42 on).

A client's data may be replaced, which moves a sum by 2 clip: such an event has half the plan's
noise multiplier. Flower's model for it, without amplification, is to add or remove a client, which
moves a sum by less: its epsilon holds for both. It bounds by Renyi orders, and is somewhat above
the plan's, which is exact. Clients keep their own books, whatever the server's say.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ciphercohort.flower.plan import Privacy
from protocols.errors import ParameterError


def check_accountant(accountant: Any, privacy: Privacy | None) -> None:
    """Refuse an accountant of other events.

    Raises:
        ParameterError: names field and cure.
    """
    if accountant is None:
        return
    if privacy is None or privacy.sampling < 1:
        raise ParameterError("accountant counts private sums without coins: give SecureSum privacy")
    method = getattr(accountant.config.sampling_method, "value", "")
    if method != "no-amplification":
        raise ParameterError(
            f"accountant with sampling_method={method!r}: the server knows whom it samples, which "
            "amplifies nothing; take SamplingMethod.NO_AMPLIFICATION"
        )


def event_of(accountant: Any, privacy: Privacy, clients: int) -> Any:
    """Of one sum; clients: that are asked.

    Raises:
        ParameterError: it would exceed the accountant's own limit.
    """
    config = accountant.config
    event = import_module("flwr.serverapp").GaussianPrivacyEvent(
        noise_multiplier=privacy.noise_multiplier / 2,
        sample_size=clients,
        population_size=config.population_size,
    )
    if config.max_epsilon is not None and accountant.would_exceed(event):
        raise ParameterError(
            f"max_epsilon={config.max_epsilon:g} of the accountant would be exceeded by the next "
            f"sum, after {accountant.num_releases} of them"
        )
    return event
