"""The plan of a run that opens one sum and trains nothing."""

from __future__ import annotations

from dataclasses import replace

from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.sums import cipher_of
from protocols.privacy.certificates.sums import MECHANISM_SHARE, SumSetting
from protocols.privacy.loss import epsilon_for_mu, mu_for_epsilon
from protocols.privacy.loss.catalogue import noise_of
from protocols.sums.one_sum import OneSum
from protocols.sums.plan import OPENS, GradientPlan


def whole_mu(wanted: Wanted) -> float:
    """mu of a Gaussian release that takes all of the promise.

    Raises:
        ParameterError: none is wanted.
    """
    return mu_for_epsilon(epsilon=wanted.epsilon or 0.0, delta=MECHANISM_SHARE * wanted.delta)


def plan_sum(
    figures: PublicFigures, wanted: Wanted, task: OneSum, mu: float | None = None
) -> GradientPlan:
    """One noisy sum by secure aggregation; of `wanted` the promise counts.

    mu: what the sum may cost; None: all that `wanted.epsilon` allows, or no noise if that is None.

    Raises:
        ParameterError: figures that do not go together.
    """
    split, size = wanted.split(figures), task.length(figures.num_features)
    scales: tuple[float, ...] = ()
    if wanted.epsilon is not None:
        mu = whole_mu(wanted) if mu is None else mu
        delta = MECHANISM_SHARE * wanted.delta
        wanted = replace(wanted, epsilon=epsilon_for_mu(mu=mu, delta=delta))
        moved = task.diameter(task.kind) / figures.rows
        setting = SumSetting(
            mechanism="gaussian",
            sensitivities=(moved,),
            scales=(moved / mu,),
            length=size,
            split=split,
            epsilon=wanted.epsilon or 0.0,
            delta=wanted.delta,
        )
        # The grid's part of the sensitivity grows with the noise.
        for _ in range(5):
            setting = replace(setting, scales=(setting.widened[0] / mu,))
        scales = setting.scales
    promise = wanted.promise(
        figures, sigma=min(scales, default=0.0), sensitivity=task.diameter(task.kind)
    )
    return GradientPlan(
        **wanted.common(figures, promise),
        cipher=cipher_of(
            figures,
            split,
            noise_of("gaussian"),
            scales,
            task.norm_bound(task.kind),
            task.precision,
        ),
        objective=task.to_dict(),
        update=OPENS,
        length=size,
        noise_scales=scales,
    )
