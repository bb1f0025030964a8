"""What no certificate and no rule takes, whatever the data: refused before anything is loaded."""

from __future__ import annotations

from typing import Any

from protocols.errors import ParameterError, PrivacyError
from protocols.names import UNDER_CKKS


def check_options(wanted: Any) -> None:
    """Refuse options that go together with no data.

    wanted: fields as of `figures.Wanted`, and others; an empty update is still to be chosen.

    Raises:
        PrivacyError: a promise for a model without a certificate. ParameterError: names the option.
    """
    private, named = wanted.epsilon is not None, wanted.update or wanted.protocol
    if private and wanted.model == "poisson":
        raise PrivacyError(
            f"epsilon={wanted.epsilon:g}: no certificate bounds what a row moves of model poisson, "
            "for all take a sigmoid for granted; take --no-privacy (epsilon=None), or a regression "
            "with a certificate (--model linear)"
        )
    usual = wanted.update in ("", "barrier")
    if wanted.model != "logistic" or wanted.protocol not in UNDER_CKKS or not (private or usual):
        return
    for name in ("learning_rate", "radius"):
        if getattr(wanted, name) is not None:
            what = f"{named} with privacy" if private else "barrier"
            raise ParameterError(
                f"{name}={getattr(wanted, name)} cannot be given for {what}: its certificate "
                "fixes it; leave it out, or use --update gd --no-privacy"
            )
