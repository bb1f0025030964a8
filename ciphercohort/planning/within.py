"""The best setting within a budget of seconds and bytes: protocol, iterations, degree, layout.

What was given stays; what was not is tried over a ladder, each setting as `calibrate` makes it, in
its cheapest layout. Settings are compared by the counts of their plans, carried over from one
rehearsal of a kind; the one with the least expected loss that fits is then rehearsed itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ciphercohort.job.config import SimulationConfig, alternatives
from ciphercohort.job.limits import Limits, asked
from ciphercohort.planning.expected import expected_loss
from ciphercohort.planning.predicted import Find, like, played, predict
from protocols.errors import CohortError, ParameterError, PrivacyError
from protocols.names import UNDER_CKKS
from protocols.plan import kinds
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.words import count, duration, size

LADDER = (4, 6, 8, 10, 15, 20, 30, 50, 100, 200, 400)
"""Iterations."""
DEGREES = (None, 15)
"""None: what the search takes of the lower ones."""
BEYOND = 2
"""So many rungs above the budget are looked at, for what more time would buy."""
WORTH = 1e-3
"""An expected loss that is not lower by this much is not better: the cheaper setting is taken."""

Costs = Callable[[Calibration], tuple[float, int]]
"""Predicted seconds, and bytes of the busiest party."""


def carried(told: bool = False) -> Costs:
    """Carried over from the rehearsal of another setting, if there is none of its own."""
    find = like(told)
    return lambda found: _costs(found, find)


def own(told: bool = False) -> Costs:
    """From a setting's own rehearsal."""
    return lambda found: _costs(found, played(told=told))


def _costs(found: Calibration, find: Find) -> tuple[float, int]:
    predicted = predict(found, find)
    if predicted is None:
        raise AssertionError("what is asked for is rehearsed")
    return predicted.costs


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to run.

    loss: expected, lower is better, None where nothing predicts it; is_rehearsed: whether seconds
    and bytes are of its own rehearsal.
    """

    config: SimulationConfig
    found: Calibration
    loss: float | None
    seconds: float
    num_bytes: int
    is_rehearsed: bool = False

    @property
    def rank(self) -> tuple[float, float]:
        """Lower is better; where no loss is expected, more iterations are."""
        if self.loss is None:
            return math.inf, -self.found.template.rounds
        return self.loss, 0.0

    @property
    def words(self) -> str:
        """For a person."""
        plan = self.found.template
        figures = kinds.figures(plan)
        degree = f", degree {figures['degree']}" if "degree" in figures else ""
        return (
            f"{plan.protocol}, {figures['update']}, {count(plan.rounds, 'iteration')}{degree}: "
            f"{duration(self.seconds)} and {size(self.num_bytes)} per party"
        )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """best: of all that fit; better: the cheapest that is better and does not, None if none is."""

    limits: Limits
    best: Setting
    better: Setting | None
    fitting: int
    tried: int

    @property
    def calibration(self) -> Calibration:
        """The best, with the choice among its notes."""
        found = self.best.found
        return replace(found, notes=(*self.lines, *found.notes))

    @property
    def lines(self) -> Iterator[str]:
        """For a person: what is chosen and why, and what more would buy."""
        best, better = self.best, self.better
        why = (
            "the most iterations"
            if best.loss is None
            else f"the cheapest within {WORTH:g} of the best"
        )
        yield (
            f"within {self.limits}: {best.words}; {why} of the {self.fitting} settings that fit, "
            f"of {self.tried} tried{_loss(best)}"
        )
        if better is None:
            yield f"more time or traffic would lower it by less than {WORTH:g}"
            return
        option = asked(better.seconds, better.num_bytes, self.limits)
        yield f"the next better: {better.words}{_loss(better)}; --within {option}"


def _loss(setting: Setting) -> str:
    if setting.loss is None:
        return ""
    return f" (expected log loss {setting.loss:.4f} on reference populations, not on these rows)"


def choose(
    config: SimulationConfig,
    figures: PublicFigures,
    costs: Costs | None = None,
    confirm: Costs | None = None,
) -> Choice:
    """The best setting within `config.within`; costs: of all settings; confirm: of the best.

    Raises:
        ParameterError: none fits; the message has the least budget that would do.
        CohortError: none is certified; as `calibrate`.
    """
    limits, costs, confirm = Limits.of(config.within or ""), costs or carried(), confirm or own()
    tried, refused = list[Setting](), list[CohortError]()
    for each in _open(config):
        _climb(each, figures, limits, costs, tried, refused)
    if not tried:
        raise refused[0]
    while True:
        choice = _best(config, limits, tried)
        best = choice.best
        if best.is_rehearsed:
            return choice
        seconds, num_bytes = confirm(best.found)
        sure = replace(best, seconds=seconds, num_bytes=num_bytes, is_rehearsed=True)
        tried[tried.index(best)] = sure


def _best(config: SimulationConfig, limits: Limits, tried: Sequence[Setting]) -> Choice:
    """Of what was tried.

    Raises:
        ParameterError: nothing fits.
    """
    fitting = [s for s in tried if limits.over(s.seconds, s.num_bytes) <= 1]
    if not fitting:
        least = min(tried, key=lambda s: limits.over(s.seconds, s.num_bytes))
        raise ParameterError(
            f"within={config.within!r} is too little: the cheapest setting, {least.words}, needs "
            f"--within {asked(least.seconds, least.num_bytes, limits)}"
        )
    good = min(fitting, key=lambda s: s.rank)
    near = [s for s in fitting if _gain(s, good) < WORTH]
    best = min(near, key=lambda s: (limits.over(s.seconds, s.num_bytes), s.rank))
    beyond = [s for s in tried if s not in fitting and _gain(best, s) >= WORTH]
    return Choice(
        limits=limits,
        best=best,
        better=min(beyond, key=lambda s: limits.over(s.seconds, s.num_bytes), default=None),
        fitting=len(fitting),
        tried=len(tried),
    )


def _is_noisy(plan: RunPlan) -> bool:
    """Whether every iteration brings noise of its own."""
    return plan.privacy is not None and plan.kind != "gram"


def _gain(worse: Setting, better: Setting) -> float:
    """By how much the loss would fall; iterations count where nothing predicts it."""
    (a, more), (b, fewer) = worse.rank, better.rank
    return more - fewer if a == b == math.inf else a - b


def _open(config: SimulationConfig) -> Iterator[SimulationConfig]:
    """Every protocol and degree that was left open."""
    for each in alternatives(config):
        on_rows = each.protocol in UNDER_CKKS and each.model == "logistic"
        for degree in DEGREES if on_rows and each.degree is None else (each.degree,):
            yield replace(each, degree=degree)


def _climb(
    config: SimulationConfig,
    figures: PublicFigures,
    limits: Limits,
    costs: Costs,
    tried: list[Setting],
    refused: list[CohortError],
) -> None:
    """Try more and more iterations, until some more would not fit either."""
    beyond, rungs = 0, list[int | None](LADDER if config.rounds is None else (config.rounds,))
    for rounds in rungs:
        asked_for = replace(config, rounds=rounds)
        try:
            found = calibrate(figures, asked_for.wanted())
        except (PrivacyError, ParameterError) as error:
            refused.append(error)
            continue
        loss = expected_loss(found, figures)
        if rounds is not None and loss is None and _is_noisy(found.template) and len(rungs) > 1:
            # More iterations bring more noise, and nothing says how much is too much.
            rungs[rungs.index(rounds) + 1 :] = [None]
            continue
        seconds, num_bytes = costs(found)
        tried.append(
            Setting(
                config=asked_for,
                found=found,
                loss=loss,
                seconds=seconds,
                num_bytes=num_bytes,
            )
        )
        beyond += limits.over(seconds, num_bytes) > 1
        if beyond >= BEYOND:
            return
