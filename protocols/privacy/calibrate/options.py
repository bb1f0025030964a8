"""What no certificate and no rule takes, whatever the data: refused before anything is loaded."""

from __future__ import annotations

from typing import Any

from protocols.errors import ParameterError, PrivacyError
from protocols.models.registry import model_named
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION, UNDER_CKKS

RIDGED = ("gd", "clipped-gd", "hb", "nag", "masg", "nag-opt", "masg-opt", "scd")
"""Updates of encrypted sums that have a ridge; others would drop it without a word."""


QUIET = dict.fromkeys((ENCRYPTED_ROWS, ENCRYPTED_MODEL), ("logistic", "linear"))
"""Models whose rows can be whitened without privacy, by protocol; where no update is asked for, and
no ridge, they are."""


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
    from_sums = ("linear", "improved-lffr")
    if private and wanted.model in from_sums and wanted.protocol == ENCRYPTED_MODEL:
        raise PrivacyError(
            f"epsilon={wanted.epsilon:g}: no certificate bounds what a row moves in rounds of "
            f"model {wanted.model}, whose gradients grow with the weights; take --protocol "
            "encrypted-rows, where noise is added to sums once, or --no-privacy (epsilon=None)"
        )
    if private and wanted.batches > 1 and wanted.protocol == ENCRYPTED_MODEL:
        raise PrivacyError(
            f"batches={wanted.batches} with epsilon={wanted.epsilon:g}: whatever secret coins "
            "amplify, the noise would be larger than that of all rows; leave batches out, or add "
            "--no-privacy"
        )
    # The usual updates of several classes and of numeric targets have one.
    model = model_named(wanted.model)
    ridged = wanted.update in RIDGED or (not wanted.update and (model.several or model.numeric))
    if wanted.protocol == SECURE_AGGREGATION and wanted.ridge is not None and not ridged:
        raise ParameterError(
            f"ridge={wanted.ridge:g} is an option of --update {', '.join(RIDGED)}: leave it out "
            f"for {named}"
        )
    if wanted.update == "scd" and wanted.learning_rate is not None:
        raise ParameterError(
            f"learning_rate={wanted.learning_rate:g}: update 'scd' has steps of its own; leave it "
            "out"
        )
    if private and wanted.floor is not None:
        raise ParameterError(
            f"floor={wanted.floor} cannot be given with privacy: the curvature is public then, and "
            "nothing is inverted; leave it out, or add --no-privacy"
        )
    if wanted.moment_epsilon is not None:
        _check_moment(wanted)
    usual = wanted.update in ("", "barrier")
    if wanted.model != "logistic" or wanted.protocol not in UNDER_CKKS or not (private or usual):
        return
    for name in ("learning_rate", *(["radius"] if private or wanted.update else [])):
        if getattr(wanted, name) is not None:
            what = f"{named} with privacy" if private else named
            raise ParameterError(
                f"{name}={getattr(wanted, name)} cannot be given for {what}: its certificate "
                "fixes it; leave it out, or use --update gd --no-privacy"
            )


def _check_moment(wanted: Any) -> None:
    told = f"moment_epsilon={wanted.moment_epsilon:g}"
    if wanted.epsilon is not None:
        raise ParameterError(
            f"{told} with epsilon={wanted.epsilon:g}: the second moment of a run with privacy has "
            "its part of that; leave it out, or add --no-privacy"
        )
    models = QUIET.get(wanted.protocol, ())
    diagonal = wanted.protocol == ENCRYPTED_MODEL and wanted.model == "logistic"
    taken = ("gd", "nag", *(("quadratic-gd", "quadratic-nag") if diagonal else ()))
    if wanted.model not in models or wanted.update not in ("", *taken) or wanted.ridge:
        raise ParameterError(
            f"{told}: protocol {wanted.protocol} whitens rows without privacy for model "
            f"{' or '.join(models)} and update {', '.join(taken)}, without a ridge, not for "
            f"{wanted.model} and {wanted.update or 'the usual one'}; leave it out"
        )
