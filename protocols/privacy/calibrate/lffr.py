"""LFFR: an encrypted preconditioner, or a certified rate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.lffr import LFFR_LEVELS
from protocols.errors import ParameterError
from protocols.lffr.home_plan import LffrModelPlan
from protocols.lffr.plan import LffrPlan, fixed_hessian_of
from protocols.models.lffr import CURVATURE, PAPER_LINK
from protocols.models.lffr import curvature as steepest_slope
from protocols.numerics import arithmetic
from protocols.plan.kinds import with_slot_bound
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
from protocols.privacy.calibrate.rows import laid_out
from protocols.privacy.certificates import lffr as lffr_certificate
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.lffr import LffrSetting, row_bound
from protocols.rows.curvature import Curvature, largest_row_sum
from protocols.updates.registry import rule_named

DEFAULT_ROUNDS = 30
PRIVATE_ROUNDS = 10
"""Noise per round grows as fast as the steps shrink, so that more rounds gain nothing."""
BISECTIONS = 40


def draft_lffr(figures: PublicFigures, wanted: Wanted) -> Draft:
    """A ring, and either an encrypted preconditioner or a certified rate.

    Raises:
        PrivacyError: a condition fails. ParameterError: no ring fits.
    """
    certificate, privacy, rate = None, None, 1.0
    notes: tuple[str, ...] = ()
    curvature: Curvature | None = None
    params = choose_parameters(LFFR_LEVELS, secure=wanted.secure, ring_dim=wanted.ring_dim)
    if wanted.epsilon is None:
        curvature = lffr_curvature(figures, wanted.ridge or 0.0, wanted.floor)
    else:
        certificate = largest_lffr_rate(figures, wanted)
        rate = certificate.setting.learning_rate
        privacy, notes = _promised(figures, wanted, certificate)
    plan = LffrPlan(
        **wanted.common(figures, privacy),
        ckks=params,
        cover=wanted.cover,
        outputs=figures.outputs,
        rounds=lffr_rounds(wanted),
        link=PAPER_LINK,
        curvature=curvature,
        learning_rate=rate,
        ridge=wanted.ridge or 0.0,
    )
    return Draft(with_slot_bound(plan, figures.norm_bound), certificate, notes)


def _promised(
    figures: PublicFigures, wanted: Wanted, certificate: Certificate
) -> tuple[PrivacyPlan | None, tuple[str, ...]]:
    """What a plan says of the certified rate."""
    setting = certificate.setting
    note = (
        f"learning_rate={setting.learning_rate:.4g} was chosen, the largest with which no score "
        f"can leave [-{PAPER_LINK.radius:g}, {PAPER_LINK.radius:g}]: more rows, fewer columns or a "
        "larger epsilon raise it"
    )
    promise = wanted.promise(figures, sigma=setting.sigma, sensitivity=certificate.sensitivity)
    return promise, (note,)


def draft_at_home(figures: PublicFigures, wanted: Wanted) -> Draft:
    """A public rate: nag, or gd with a ridge; with privacy gd at a certified one.

    Raises:
        PrivacyError: a condition fails. ParameterError: options that do not fit, or no ring.
    """
    certificate, privacy = None, None
    notes: tuple[str, ...] = ()
    private, ridge = wanted.epsilon is not None, wanted.ridge or 0.0
    update = wanted.update or ("gd" if private or ridge else "nag")
    if update not in ("gd", "nag"):
        raise ParameterError(f"update={update!r}: model lffr takes gd or nag here")
    if update != "gd" and (private or ridge):
        named = f"epsilon={wanted.epsilon:g}" if private else f"ridge={ridge:g}"
        raise ParameterError(f"update={update!r} with {named}: model lffr takes gd then")
    if wanted.floor is not None:
        raise ParameterError(
            f"floor={wanted.floor} is of an inverted curvature, and here is none: leave it out, or "
            "take --protocol encrypted-rows"
        )
    steepest = steepest_slope(PAPER_LINK) * figures.norm_bound**2 + 2 * ridge
    rate, rounds = wanted.learning_rate or 1 / steepest, lffr_rounds(wanted)
    if private:
        certificate = largest_lffr_rate(figures, wanted)
        rate, rounds = certificate.setting.learning_rate, certificate.setting.rounds
        privacy, notes = _promised(figures, wanted, certificate)
    more = {"ridge": 2 * ridge} if ridge else {}
    rule: Any = rule_named(update)(rounds=rounds, learning_rate=rate, **more)  # type: ignore[call-arg]
    levels = LffrModelPlan.levels_of(PAPER_LINK, rule)
    plan = LffrModelPlan(
        **wanted.common(figures, privacy),
        link=PAPER_LINK,
        update=rule.to_dict(),
        ckks=choose_parameters(levels, secure=wanted.secure, ring_dim=wanted.ring_dim),
        cover=wanted.cover,
        targets=figures.outputs,
        batches=wanted.batches,
    )
    return Draft(laid_out(plan, figures, wanted), certificate, notes)


def lffr_rounds(wanted: Wanted) -> int:
    """Iterations T."""
    return wanted.rounds or (DEFAULT_ROUNDS if wanted.epsilon is None else PRIVATE_ROUNDS)


def lffr_curvature(figures: PublicFigures, ridge: float, floor: float | None = None) -> Curvature:
    """Range of the diagonal bound; floor: its offset over what rows add at most."""
    columns = [figures.entry_bound] * figures.num_features
    largest = largest_row_sum(figures.num_features, norm=figures.norm_bound, columns=columns)
    given = {} if floor is None else {"offset": floor * CURVATURE * largest}
    return fixed_hessian_of(largest, ridge=ridge, **given)


def largest_lffr_rate(figures: PublicFigures, wanted: Wanted) -> Certificate:
    """The least noise for the promise, and the largest rate that keeps every score in range.

    Raises:
        PrivacyError: a condition fails whatever the rate.
    """
    bound = row_bound(PAPER_LINK, figures.norm_bound, figures.outputs)
    size = figures.num_features * figures.outputs
    steepest = 1 / (CURVATURE * figures.norm_bound**2)
    setting = LffrSetting(
        rows=figures.rows,
        features=figures.num_features,
        outputs=figures.outputs,
        norm_bound=figures.norm_bound,
        encryption_error=arithmetic.allowed_error(bound, size),
        link=PAPER_LINK,
        learning_rate=min(steepest, 1 / (2 * wanted.ridge)) if wanted.ridge else steepest,
        rounds=lffr_rounds(wanted),
        ridge=wanted.ridge or 0.0,
        budget=wanted.budget(figures),
    ).resolved()
    low, high = 0.0, setting.learning_rate
    for _ in range(BISECTIONS if setting.reached() > setting.radius else 0):
        middle = (low + high) / 2
        fits = replace(setting, learning_rate=middle).reached() <= setting.radius
        low, high = (middle, high) if fits else (low, middle)
    return lffr_certificate.check(replace(setting, learning_rate=low or high)).require()
