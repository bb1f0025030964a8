"""Least squares on Gram sums: a ridge that noise needs, or a known spectrum."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from protocols.ckks import CkksParameters
from protocols.ckks.circuits.choice import choose_parameters
from protocols.gram.contributions import layout_for, row_sum_bound
from protocols.gram.plan import GramPlan
from protocols.gram.training import LEVELS
from protocols.models.gram_models import gram_model
from protocols.numerics.whitening import guided
from protocols.plan.kinds import only, with_slot_bound
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
from protocols.privacy.calibrate.whitened import QUIET_NOTE, QUIET_ROUNDS, Moment
from protocols.privacy.certificates import gram as gram_certificate
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.gram import GramRelease

DEFAULT_ROUNDS = 30
"""With much noise, of which more iterations only learn more."""
GRAM_ROUNDS = 60
"""Leave 1 in 67 of what belongs to curvatures from 1 / 600 of the largest on (`gram.pace`)."""
SMALL_RIDGE = 0.01
"""Of the largest curvature: noise that needs more ridge is much."""
SPAN = 0.45
"""T times the lowest curvature that T steps on whitened rows wait for, of the bound: 12 steps leave
1 in 50 of what belongs to it and to larger ones, 40 1 in 2,400."""
QUIET_FLOOR = 2.0**-10
"""Of the bound of row sums there, which are a hundredth to a thousandth of it."""
FLOOR = 1 / 16
"""Of the Gram curvature; 1 / 64 would save a tenth of the iterations and double the noise."""


def draft_gram(figures: PublicFigures, wanted: Wanted) -> Draft:
    """A ridge, a bound on the curvature, a ring, and with privacy a certificate.

    Raises:
        PrivacyError: a condition fails. ParameterError: no ring fits.
    """
    params = gram_ring(wanted, figures.num_features, figures.outputs)
    certificate, ridge, curvature = None, wanted.ridge or 0.0, gram_curvature(figures)
    privacy: PrivacyPlan | None = None
    notes: tuple[str, ...] = ()
    if wanted.epsilon is not None:
        certificate = least_gram_noise(figures, wanted)
        release: GramRelease = certificate.setting
        curvature = certificate.figures["curvature_bound"]
        privacy = wanted.promise(
            figures, sigma=float(release.sigma or 0.0), sensitivity=certificate.sensitivity
        )
        if release.ridge != ridge:
            notes = (
                f"ridge={release.ridge:.4g} was chosen, the bound on the noise of the sums, so "
                "that training cannot diverge; it shrinks the model: more rows, fewer columns or "
                "a larger epsilon lower it",
            )
        ridge = release.ridge
    quiet = privacy is None or 2 * ridge < SMALL_RIDGE * (curvature + 2 * ridge)
    plan = GramPlan(
        **wanted.common(figures, privacy),
        model=wanted.model,
        ckks=params,
        cover=wanted.cover,
        outputs=figures.outputs,
        rounds=wanted.rounds or (GRAM_ROUNDS if quiet else DEFAULT_ROUNDS),
        ridge=ridge,
        curvature_bound=curvature,
        floor=wanted.floor or FLOOR,
        accelerated=True,
    )
    return Draft(with_slot_bound(plan, figures.norm_bound), certificate, notes)


def gram_curvature(figures: PublicFigures) -> float:
    """Bound on the parties' row sums b."""
    return row_sum_bound(figures.norm_bound, figures.num_features, figures.entry_bound)


def gram_ring(wanted: Wanted, num_features: int, outputs: int) -> CkksParameters:
    """Smallest ring that is secure; a matrix that does not fit into a ciphertext takes blocks.

    Raises:
        ParameterError: there is none, or the matrix has too many columns for blocks.
    """
    params = choose_parameters(LEVELS, secure=wanted.secure, ring_dim=wanted.ring_dim)
    layout_for(params.num_slots, num_features, outputs)
    return params


def least_gram_noise(figures: PublicFigures, wanted: Wanted) -> Certificate:
    """The least noise for the promise, and the ridge that it needs at least.

    Raises:
        PrivacyError: a condition fails.
    """
    release = GramRelease(
        budget=wanted.budget(figures),
        norm_bound=figures.norm_bound,
        target_bound=gram_model(wanted.model).bound(figures.outputs),
        rows=figures.rows,
        features=figures.num_features,
        outputs=figures.outputs,
        ridge=math.inf,
    ).resolved()
    # A grid as coarse as that of the noise itself needs may be coarser by one step.
    needed = next(c.right for c in gram_certificate.check(release).conditions if c.name == "noise")
    release = replace(release, sigma=max(needed, release.sigma or 0.0))
    ridge = max(wanted.ridge or 0.0, release.noise_bound)
    return gram_certificate.check(replace(release, ridge=ridge)).require()


def draft_whitened(
    figures: PublicFigures, wanted: Wanted, moment: Moment, known: dict[str, Any]
) -> Draft:
    """Least squares on sums of rows that are whitened: Chebyshev's steps on what few can reach.

    Encrypted row sums bound the curvature, however much noise the moment has.
    """
    whitening, _ = guided(moment.matrix, figures.usual, shortened=False, **known)
    rounds = wanted.rounds or QUIET_ROUNDS
    plain = draft_gram(figures, replace(wanted, rounds=rounds)).plan
    plan = replace(
        only(GramPlan, plain),
        curvature_bound=whitening.row_sum_bound,
        floor=wanted.floor or QUIET_FLOOR,
        lowest=min(SPAN / rounds, 0.5),
        whitening=whitening,
        moment_plan=moment.plan,
        moment_privacy=moment.promise,
        slot_bound=None,
    )
    note = QUIET_NOTE.format(wanted.moment_epsilon)
    return Draft(with_slot_bound(plan, figures.norm_bound), None, (note,))
