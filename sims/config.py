"""What a simulation is asked to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocols.approximation import SIGMOID_DEGREES
from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION, protocol_name
from protocols.privacy.catalogue import NOISES
from protocols.updates.catalogue import QUADRATIC

PROFILES = ("secure", "fast-insecure")
UPDATES = {
    ENCRYPTED_ROWS: ("barrier", "gd", "nag", *QUADRATIC),
    SECURE_AGGREGATION: (
        *("barrier", "gd", "clipped-gd", "nag", "hb", "masg", "nag-opt", "masg-opt", "scd"),
        *("adagrad", "adam", *QUADRATIC, "quadratic-adagrad", "quadratic-adam"),
    ),
}
"""Update rules by protocol."""
CHOICES = {
    "weights": ("rows", "equal"),
    "loss": ("logistic", "ridge", "svm"),
    "schedule": ("cyclic", "poisson"),
    "mechanism": tuple(NOISES),
}
REGRESSIONS = ("linear", "improved-lffr", "lffr")
"""Models of numeric targets, several at once."""
LOGISTIC_ONLY = ("label", "positive", "protocol", "update", "degree", "learning_rate", "radius")
AGGREGATION_ONLY = (
    *("ridge", "momentum", "clip", "weights", "loss", "batches", "schedule", "mechanism"),
)


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """One `cohort simulate`.

    data: CSV or Parquet file, pandas frame or (X, y) arrays; None: a data set that scikit-learn
    ships. model: "logistic", or a regression: see REGRESSIONS. label: label column of a logistic
    model; positive: its positive value. targets: numeric columns that a regression predicts.
    schema: schema file; None: inferred from the data, which a deployment may not do. test: file
    with test rows, or None to
    hold out the share `holdout`. parties: number of parties (None only with split "by:COLUMN").
    split: "even", "by:COLUMN" or "dirichlet:ALPHA". protocol: "encrypted-rows", once, or
    "secure-aggregation" of an encrypted sum a round. update: see UPDATES. rounds: iterations; None:
    chosen. degree: of the sigmoid polynomial; None: chosen (7 without privacy). epsilon, delta,
    colluders: the privacy promise; epsilon None: no privacy noise. learning_rate, radius: of gd
    and nag; None: chosen. ridge: of regressions and of secure aggregation; None: chosen. Of
    secure aggregation alone: momentum; clip: bound on a
    row's gradient (of scd: on its step), None: the natural one; weights: of the parties, "rows"
    or "equal"; loss, batches, schedule: of scd; mechanism: of the noise. seed:
    of splits and noise: a seeded run is NOT PRIVATE. profile: "secure" (128 bits) or "fast-
    insecure" (toy ring). processes: each party in its own spawned process. strict: refuse
    values outside the schema. out: run folder, or
    None. keep_messages: keep every message there, for an audit. cover: so many parties can stand
    in for others that vanish, None: nobody can. ledger: folder with one ledger per party, None:
    none is kept.

    Raises:
        ParameterError: a field is out of range; the message names field, value, bound and cure.
    """

    data: Any = None
    model: str = "logistic"
    targets: tuple[str, ...] = ()
    label: str | None = None
    positive: str | None = None
    schema: Path | None = None
    test: Path | None = None
    holdout: float = 0.2
    exclude: tuple[str, ...] = ()
    parties: int | None = 3
    split: str = "even"
    protocol: str = ENCRYPTED_ROWS
    update: str = "barrier"
    rounds: int | None = None
    degree: int | None = None
    learning_rate: float | None = None
    radius: float | None = None
    ridge: float | None = None
    momentum: float | None = None
    clip: float | None = None
    weights: str = "rows"
    loss: str = "logistic"
    batches: int = 1
    schedule: str = "cyclic"
    mechanism: str = "gaussian"
    epsilon: float | None = None
    delta: float = 1e-5
    colluders: int = 0
    ledger: Path | None = None
    seed: int | None = None
    cover: int | None = None
    profile: str = "secure"
    ring_dim: int | None = None
    processes: bool = False
    strict: bool = False
    out: Path | None = None
    keep_messages: bool = False

    def __post_init__(self) -> None:
        if self.parties is None and not self.split.startswith("by:"):
            raise ParameterError(f"split={self.split!r} needs parties, the number of data owners")
        if self.parties is not None and self.parties < 2:
            raise ParameterError(
                f"parties={self.parties} is below 2: joint training needs at least two data owners"
            )
        object.__setattr__(self, "protocol", protocol_name(self.protocol))
        self._check_model()
        self._check_protocol()
        if self.degree is not None and self.degree not in SIGMOID_DEGREES:
            raise ParameterError(
                f"degree={self.degree} is not one of {', '.join(map(str, SIGMOID_DEGREES))}"
            )
        if self.rounds is not None and self.rounds < 1:
            raise ParameterError(f"iterations={self.rounds} must be at least 1")
        if self.profile not in PROFILES:
            raise ParameterError(f"profile={self.profile!r} is not one of {', '.join(PROFILES)}")
        if self.epsilon is not None and not self.epsilon > 0:
            raise ParameterError(f"epsilon={self.epsilon} must be positive")
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta={self.delta} is outside (0, 1); 1e-5 is usual")
        if self.colluders < 0:
            raise ParameterError(f"colluders={self.colluders} must not be negative")
        if self.parties is not None and self.colluders >= self.parties:
            raise ParameterError(
                f"colluders={self.colluders} must be below parties={self.parties}: someone has "
                "to be honest"
            )
        for name in ("learning_rate", "radius", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ParameterError(f"{name}={value} must be positive")
        if self.test is None and not 0 < self.holdout < 1:
            raise ParameterError(f"holdout={self.holdout} is outside (0, 1); 0.2 is usual")
        if self.keep_messages and self.out is None:
            raise ParameterError("keep_messages needs a run folder: add --out FOLDER")
        self._check_outcome()
        self._check_ledger()
        self._check_cover()

    def _check_cover(self) -> None:
        """The plan checks the rest, once the parties are known."""
        if self.cover is None:
            return
        if self.protocol != ENCRYPTED_ROWS:
            raise ParameterError(
                f"cover={self.cover} is an option of --protocol encrypted-rows: with "
                "secure-aggregation, start again without the party that vanished"
            )
        if self.cover < 2 or (self.parties is not None and self.cover >= self.parties):
            raise ParameterError(
                f"cover={self.cover} is outside 2 … parties - 1: so many parties stand in for "
                "those that vanish"
            )
        if self.epsilon is not None and self.cover - 1 < self.colluders:
            raise ParameterError(
                f"cover={self.cover} gives {self.cover} colluding parties every key, which is not "
                f"above colluders={self.colluders}: take --cover {self.colluders + 1} or more"
            )

    def _check_ledger(self) -> None:
        if self.ledger is not None and self.epsilon is None:
            raise ParameterError("ledger needs a privacy promise: leave out --no-privacy")

    @property
    def is_regression(self) -> bool:
        """Whether numeric targets are predicted."""
        return self.model in REGRESSIONS

    def _check_outcome(self) -> None:
        """What is predicted: a label of two values, or numeric targets."""
        object.__setattr__(self, "targets", tuple(self.targets))
        if not self.is_regression:
            if self.targets:
                raise ParameterError(
                    f"target={','.join(self.targets)} is numeric, which model logistic does not "
                    f"predict: add --model {REGRESSIONS[0]}, or name a yes/no column by --label"
                )
            if self.data is not None and self.label is None:
                raise ParameterError(
                    "label is missing: name the column to predict, such as --label y"
                )
            return
        if self.data is not None and not self.targets:
            raise ParameterError(
                f"target is missing: model {self.model} predicts numeric columns, such as "
                "--target Y1,Y2"
            )
        for name, times in Counter(self.targets).items():
            if times > 1 or not name:
                raise ParameterError(f"target={name!r} is empty or named twice: name each once")
        by = self.split.partition("by:")[2]
        if by and by in self.targets:
            raise ParameterError(f"split={self.split!r} names a target: choose another column")
        if self.split.startswith("dirichlet"):
            raise ParameterError(
                f"split={self.split!r} skews classes, which numeric targets have not: take even "
                "or by:COLUMN"
            )

    def _check_model(self) -> None:
        if self.model == "logistic":
            return
        if self.model not in REGRESSIONS:
            raise ParameterError(
                f"model={self.model!r} is not one of {', '.join(('logistic', *REGRESSIONS))}"
            )
        for name in LOGISTIC_ONLY:
            value = getattr(self, name)
            if value != type(self).__dataclass_fields__[name].default:
                raise ParameterError(
                    f"{name}={value} is an option of --model logistic: leave it out for "
                    f"{self.model}"
                )

    def _check_protocol(self) -> None:
        if self.protocol not in UPDATES:
            raise ParameterError(f"protocol={self.protocol!r} is not one of {', '.join(UPDATES)}")
        offered = UPDATES[self.protocol]
        if self.update not in offered:
            others = [name for name, updates in UPDATES.items() if self.update in updates]
            cure = f"; it runs with --protocol {others[0]}" if others else ""
            raise ParameterError(
                f"update={self.update!r} is not one of {', '.join(offered)}, the updates of "
                f"protocol {self.protocol}{cure}"
            )
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ParameterError(
                    f"{name}={getattr(self, name)!r} is not one of {', '.join(choices)}"
                )
        if self.protocol == ENCRYPTED_ROWS:
            for name in AGGREGATION_ONLY:
                if name == "ridge" and self.is_regression:
                    continue
                if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                    raise ParameterError(
                        f"{name}={getattr(self, name)} is an option of --protocol "
                        "secure-aggregation"
                    )
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise ParameterError(f"momentum={self.momentum} is outside [0, 1)")
        if self.ridge is not None and not self.ridge >= 0:
            raise ParameterError(f"ridge={self.ridge} is below 0")
        if self.batches < 1:
            raise ParameterError(f"batches={self.batches} is below 1")
