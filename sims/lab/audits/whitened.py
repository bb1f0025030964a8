"""Both runs of training on whitened rows, for an audit: on its own table, whose axes are alike.

The table is that of `audit_privacy`. Its second moment is drawn once, with all parties' noise; the
plan of the second run follows from it as it would in a deployment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parties.kernel.integers.symmetric import flat, square
from protocols.plan.kinds import only
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.whitened import Moment, moment_plan
from protocols.privacy.certificates.certificate import Certificate
from protocols.rows.plan import RowsPlan
from protocols.sums.plan import GradientPlan
from protocols.updates.update import Update
from sims.lab.audits.privacy import axes


class Pair(NamedTuple):
    """Plans of the two runs, and what the second one says of both."""

    first: GradientPlan
    plan: RowsPlan
    certificate: Certificate

    @property
    def rule(self) -> Update:
        """Of the second run."""
        return self.plan.rule


def both_runs(figures: PublicFigures, wanted: Wanted, rng: np.random.Generator) -> Pair:
    """What the product makes of such a table.

    Raises:
        PrivacyError, ParameterError: see `calibrate`.
    """
    first = moment_plan(figures, wanted)
    counts, _ = axes(figures.rows, figures.num_features)
    moment = flat(np.diag(counts * figures.norm_bound**2 / figures.rows))
    noise = first.split.total_std(first.noise_scales[0]) * rng.standard_normal(moment.size)
    told = Moment(square(moment + noise), first.noise_scales[0], first.digest())
    found = calibrate(figures, wanted, told)
    if found.certificate is None:
        raise AssertionError("whitened rows came without a certificate")
    return Pair(first, only(RowsPlan, found.template), found.certificate)
