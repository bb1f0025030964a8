"""Sums over the rows of several parties, one after the other: simulated here, or deployed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ciphercohort.job.config import PrivacyOptions, SimulationConfig, kinds
from ciphercohort.job.figures import figures_of
from ciphercohort.job.options import checked, options_of
from ciphercohort.results.result import Array
from parties.reader.imputation import drawn
from parties.reader.schema import Schema
from protocols.errors import ParameterError, PrivacyError
from protocols.names import SECURE_AGGREGATION
from protocols.plan.held_out import HeldOut
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum, whole_mu
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.sums.one_sum import OneSum
from protocols.sums.plan import GradientPlan
from protocols.words import count

INSIST = "insist by --however-noisy"
LARGEST_CURE = 16.0
"""Grids of noise are too coarse for an epsilon much above."""


def or_epsilon(epsilon: float) -> str:
    """That it would do in place of more rows; empty where it is too large to be taken."""
    return f" or epsilon={math.ceil(10 * epsilon) / 10:g}" if epsilon < LARGEST_CURE else ""


def sums_wanted(epsilon: float | None, delta: float, colluders: int) -> Wanted:
    """The promise of sums, all together.

    Raises:
        ParameterError: one of them is out of range.
    """
    given = {"epsilon": epsilon, "delta": delta, "colluders": colluders}
    for each in options_of(PrivacyOptions):
        if each.name in given:
            checked(each, kinds()[each.name], given[each.name])
    return Wanted(
        protocol=SECURE_AGGREGATION, update="gd", epsilon=epsilon, delta=delta, colluders=colluders
    )


def following_mu(config: SimulationConfig) -> tuple[float, float]:
    """What the sums of standard errors, and that of an evaluation, may cost beside a training.

    Raises:
        ParameterError: the promise is out of range, or there is none.
    """
    whole, own = (
        whole_mu(sums_wanted(each.epsilon, each.delta, each.colluders))
        for each in (config, config.for_training())
    )
    training, *parts = config.shares
    errors, judged = (math.sqrt(part / (1 - training) * (whole**2 - own**2)) for part in parts)
    return errors, judged


def noise_std(plan: GradientPlan) -> float:
    """Of each value of a sum, of all parties; 0 without privacy."""
    return plan.split.total_std(max(plan.noise_scales, default=0.0))


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One finished sum.

    values: the sum over rows, divided by their number, shape (length,); norm_bound: of rows; head:
    of the transcript.
    """

    plan: GradientPlan
    values: Array
    norm_bound: float
    head: str

    @property
    def noise_std(self) -> float:
        """Of each value."""
        return noise_std(self.plan)

    @cached_property
    def mechanism(self) -> Mechanism | None:
        """What it cost; None without privacy."""
        return Mechanism.from_plan(self.plan, self.norm_bound) if self.plan.privacy else None


@dataclass(frozen=True, kw_only=True)
class SumSeries(ABC):
    """Sums over the rows of the same parties, one after the other.

    schema: of their rows; sizes: rows of whole tables by party; wanted: the promise; held_out:
    which of the rows are summed, None: all; columns: names of those that a study takes, empty: all;
    asked: what it was asked for, which its first plan states; however_noisy: also where noise will
    probably leave nothing of the result, else refused before a sum;
    of_training: digest of the plan of the training whose model they are at, see `GradientPlan`;
    on_progress: is told of a unit, how many are done, and of how many, 0: nobody knows; done: all
    sums so far.
    """

    schema: Schema
    sizes: Mapping[str, int]
    wanted: Wanted
    held_out: HeldOut | None = None
    columns: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    however_noisy: bool = False
    of_training: str = ""
    on_progress: Callable[[str, int, int], None] = lambda unit, done, total: None
    done: list[Opened] = field(default_factory=list)

    @property
    def figures(self) -> PublicFigures:
        """Of the rows that are summed."""
        return figures_of(self.schema, self.sizes.values(), self.held_out)

    @property
    def rows(self) -> int:
        """N, of all parties."""
        return self.figures.rows

    @property
    def begun(self) -> bool:
        """Whether sums of it were opened before: it is gone on with, or read again."""
        return False

    @property
    def notes(self) -> list[str]:
        """What is known of the rows, and no coordinator should be told."""
        return []

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What the sums have cost so far."""
        return tuple(each.mechanism for each in self.done if each.mechanism)

    def drawn(self, draw: int) -> SumSeries:
        """Over the rows whose missing cells were drawn; draw: which of the draws, from 1.

        Raises:
            SchemaError: the schema has no models of them.
        """
        return replace(self, schema=drawn(self.schema, draw))

    def plan(self, task: OneSum, mu: float | None = None) -> GradientPlan:
        """The plan of a sum, certified; session and members are placeholders.

        Raises:
            ParameterError, PrivacyError: no such plan.
        """
        plan = plan_sum(self.figures, self.wanted, task, mu)
        first = self.done[0].plan.digest() if self.done else ""
        plan = replace(plan, of_training=self.of_training, of_series=first)
        if plan.privacy:
            Mechanism.from_plan(plan, self.schema.norm_bound).require()
        return plan

    def open(self, task: OneSum, mu: float | None = None) -> Opened:
        """Run it; mu: what it may cost, None: all of the promise.

        Raises:
            CohortError: it is refused, or aborted.
        """
        try:
            plan = self.plan(task, mu)
            if not self.done:
                plan = replace(plan, asked=self.asked)
            plan, values, head = self.ran(plan)
        except UnopenedError:
            raise
        except ParameterError as error:
            raise UnopenedError(*error.args) from error
        opened = Opened(
            plan=plan,
            values=values,
            norm_bound=self.schema.norm_bound,
            head=head,
        )
        self.done.append(opened)
        self.on_progress("sums", len(self.done), 0)
        return opened

    @abstractmethod
    def ran(self, template: GradientPlan) -> tuple[GradientPlan, Array, str]:
        """Run a plan: as agreed, what it opened, and the head of the transcript.

        Raises:
            CohortError: it is refused, or aborted.
        """


class UnopenedError(ParameterError):
    """A sum was refused: what opened before it is no result, and may be gone on with."""


class SpentError(PrivacyError):
    """Noisy sums were opened, and gave no result: what they cost stays spent."""

    @property
    def documented(self) -> dict[str, str]:
        """In the place of a result, where that would stand on disk."""
        return {"refused": str(self)}


@contextmanager
def spent_is_told(sums: SumSeries) -> Iterator[None]:
    """A refusal for what noisy sums opened says that their epsilon stays spent.

    Raises:
        SpentError: they gave no result. UnopenedError: the same error, with that sentence added.
    """
    try:
        yield
    except (ParameterError, PrivacyError) as error:
        wanted = sums.wanted
        if wanted.epsilon is None or not sums.done:
            raise
        words = f"{count(len(sums.done), 'sum')} opened before that"
        spent = f"count epsilon={wanted.epsilon:g}, delta={wanted.delta:g} as spent"
        error.args = (f"{error}; {words}: {spent}",)
        if isinstance(error, UnopenedError):
            raise
        raise SpentError(*error.args) from None


def without_table(error: Exception, sums: SumSeries) -> str:
    """Words where standard errors were refused, perhaps after some of their sums were opened."""
    words, wanted = f"no standard errors: {error}", sums.wanted
    if wanted.epsilon is None:
        return words
    if not sums.done:
        return f"{words}; none of their sums was opened"
    return (
        f"{words}; sums were opened before that: count epsilon={wanted.epsilon:g}, "
        f"delta={wanted.delta:g} in all, not the part of what came before alone"
    )
