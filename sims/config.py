"""What a simulation is asked to do: every option once, with its words, bounds and default.

The command line, the Python functions and `coordinator.toml` are made from these groups, and all
of them are refused here, before any data are read or a key is made.
"""

from __future__ import annotations

import math
import numbers
import os
from collections import Counter
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from protocols.documents import shown, suggest
from protocols.errors import ParameterError
from protocols.models.registry import CLASSIFIERS, MODELS, model_named
from protocols.names import (
    ENCRYPTED_MODEL,
    ENCRYPTED_ROWS,
    SECURE_AGGREGATION,
    UNDER_CKKS,
    protocol_name,
)
from protocols.privacy.calibrate.options import check_options
from protocols.privacy.catalogue import NOISES
from protocols.updates.registry import ANYWHERE, IN_THE_CLEAR, UPDATES, VARIANTS
from sims.limits import Limits

PROFILES = ("secure", "fast-insecure")
REGRESSIONS = tuple(name for name in MODELS if name not in CLASSIFIERS)
"""Models of numeric targets, several at once."""
WITH_INFERENCE = ("logistic", "linear", "poisson")
"""Models whose standard errors are known."""
DEGREES = (3, 5, 7, 9, 11, 13, 15)
DEFAULT_EPSILON, DEFAULT_DELTA, DEFAULT_PARTIES = 1.0, 1e-5, 3
OF_DUAL = ("loss", "batches", "schedule")
"""Options of update scd alone."""
ANY = "any"
"""Protocol that a budget chooses."""
FORMER = {"interval": "radius", "holdout": "test_share"}
"""Names that options had before, which still are taken."""


def option(
    default: Any,
    words: str,
    *,
    name: str = "",
    panel: str = "",
    choices: tuple[Any, ...] = (),
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    cure: str = "",
    of: str = "",
    is_asked: bool = False,
) -> Any:
    """A field of the configuration.

    words: its help. name: on the command line, if another. panel: of the help, if not the group's.
    choices; above <, least <=, below >: what values may be. cure: what to do otherwise. of: the
    models or the protocol that it belongs to. is_asked: the command tells "not given" from default.
    """
    found = {k: v for k, v in locals().items() if k != "default"}
    return field(default=default, metadata=found)


of_logistic = partial(option, of="logistic")
of_labels = partial(option, of=" or ".join(CLASSIFIERS))
of_rows = partial(option, of="logistic or poisson")
of_gradients = partial(option, of=" or ".join((*CLASSIFIERS, "poisson", ENCRYPTED_MODEL)))
of_sums = partial(
    option, of=SECURE_AGGREGATION, panel="Training with --protocol secure-aggregation"
)


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Rows, what is predicted of them, and who owns them.

    data: file (.csv, .parquet, …), pandas frame or (X, y) arrays; None: what scikit-learn ships.
    split: "even", "by:COLUMN" or "dirichlet:ALPHA".
    """

    data: Any = option(
        None, "Table (.csv, .parquet, …). Default: scikit-learn's breast cancer data."
    )
    targets: tuple[str, ...] = option(
        (),
        "Numeric columns that a regression predicts, separated by commas: Y1,Y2. Default: the "
        "schema's.",
        name="target",
    )
    label: str | None = of_labels(
        None,
        "Column to predict, of two values; of softmax and one-vs-rest of three or more. Default: "
        "the schema's.",
    )
    positive: str | None = of_logistic(
        None, "The label's positive value. Default: 1, yes, or the larger one."
    )
    schema: Path | None = option(
        None, "Public column schema (cohort schema init). Default: inferred."
    )
    test: Path | None = option(None, "File with the rows to test on.")
    test_share: float = option(
        0.2,
        "Share of the table that belongs to no owner: test rows, in the open, for the report.",
        above=0,
        below=1,
        cure="; 0.2 is usual",
        is_asked=True,
    )
    exclude: tuple[str, ...] = option((), "Column to leave out; may be repeated.")
    strict: bool = option(False, "Refuse values outside the schema; do not clamp.")
    parties: int | None = option(
        DEFAULT_PARTIES,
        "How many data owners; with --split by:COLUMN one per value.",
        panel="Data owners",
        least=2,
        cure=": joint training needs at least two data owners",
        is_asked=True,
    )
    split: str = option(
        "even",
        "Who gets which rows: even, by:COLUMN or dirichlet:ALPHA (skewed).",
        panel="Data owners",
    )
    processes: bool = option(False, "Each in a process of its own.", panel="Data owners")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Model, protocol and update rule; where a default is None, it is chosen.

    clip: None: the natural bound. seed: of splits and noise: a seeded run is NOT PRIVATE.
    """

    model: str = option(
        "logistic",
        "logistic (a label of two values); softmax or one-vs-rest (a label of three or more, with "
        "--protocol secure-aggregation); or of numeric targets, several at once: linear, or "
        "improved-lffr (predictions bend towards the ends of the range), both on encrypted sums, "
        "or lffr (a sigmoid of the target's range, on encrypted rows); or poisson (one target that "
        "counts from 0, on encrypted rows, without privacy). All of them also run with --protocol "
        "encrypted-model, there without privacy but for lffr, and linear with secure-aggregation.",
        choices=tuple(MODELS),
    )
    protocol: str = option(
        ENCRYPTED_ROWS,
        "encrypted-rows: every row encrypted once, owners offline between refreshes; "
        "encrypted-model: rows stay home, and meet the encrypted model there, round by round; "
        "secure-aggregation: one small encrypted sum a round, owners online, every iterate public; "
        "any: with --within, which then is the default, the best of the three.",
        choices=(*UPDATES, ANY),
        is_asked=True,
    )
    update: str = option(
        "",
        "Update rule. Default: with privacy quadratic-gd, on rows that a private sum has whitened; "
        "else barrier, of numeric targets nag, or gd, lffr with privacy gd; of softmax and "
        f"one-vs-rest nag-opt with privacy, else nag. Everywhere: {', '.join(ANYWHERE)}. "
        f"secure-aggregation alone: {', '.join((*VARIANTS, *IN_THE_CLEAR))}; of linear scd.",
        of=" or ".join((*CLASSIFIERS, "poisson", ENCRYPTED_MODEL, SECURE_AGGREGATION)),
    )
    rounds: int | None = option(
        None, "How many iterations. Default: chosen.", name="iterations", least=1
    )
    degree: int | None = of_rows(
        None, "Of the link's polynomial: 3, 5 … 15. Default: chosen.", choices=DEGREES
    )
    learning_rate: float | None = of_gradients(
        None,
        "Of gd and nag without privacy; of quadratic-gd and quadratic-nag the first, 1 or more. "
        "Default: chosen.",
        above=0,
    )
    radius: float | None = of_logistic(
        None, "Half width of the sigmoid polynomial's interval. Default: chosen.", above=0
    )
    ridge: float | None = option(
        None,
        "Ridge coefficient, of regressions and of --protocol secure-aggregation. Default: 0, or "
        "what privacy needs at least.",
        least=0,
        of=SECURE_AGGREGATION,
    )
    floor: float | None = option(
        None,
        "Least curvature that is inverted, over the largest, of regressions on targets without "
        "privacy: a smaller one learns columns of little curvature sooner, and the released "
        "coefficients are less exact. Default: 1/16; of lffr 0.01 alone.",
        above=0,
        below=1,
        of="linear or improved-lffr or lffr",
    )
    momentum: float | None = of_sums(None, "Of hb. Default: 0.9.", least=0, below=1)
    clip: float | None = of_sums(
        None, "Bound on a row's gradient; of scd: on its step. Default: natural.", above=0
    )
    weights: str = of_sums(
        "rows", "What a party counts: rows (as its rows) or equal.", choices=("rows", "equal")
    )
    loss: str | None = of_sums(
        None,
        "Of scd: logistic, ridge or svm. Default: logistic; of --model linear ridge.",
        choices=("logistic", "ridge", "svm"),
    )
    batches: int = option(
        1,
        "A round takes about one row in so many: of --protocol encrypted-model without privacy, by "
        "each owner's own coins; and of scd.",
        least=1,
        of=" or ".join((SECURE_AGGREGATION, ENCRYPTED_MODEL)),
        panel="Training with --protocol secure-aggregation",
    )
    schedule: str = of_sums(
        "cyclic",
        "Of scd's batches: cyclic (public) or poisson (secret; gaussian).",
        choices=("cyclic", "poisson"),
    )
    mechanism: str = of_sums(
        "gaussian", f"Privacy noise: {' or '.join(NOISES)}.", choices=tuple(NOISES)
    )
    seed: int | None = option(None, "Repeatable split and noise: NOT PRIVATE.")
    held_out: float = option(
        0.0,
        "Share of its own rows that every owner holds back from training by secret coins, to judge "
        "the model on by a secure sum (--evaluate, cohort evaluate --rows held-out).",
        least=0,
        below=1,
        cure="; 0.2 is usual, 0 holds none back",
    )


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """What a run may cost; None: as much as it takes."""

    within: str | None = option(
        None,
        "Predicted time, such as 90s, 10m or 2h, traffic per party, such as 2GB, or both: 10m,2GB. "
        "Of protocol, iterations and degree, what is not given is chosen for the best model in it.",
    )
    bandwidth: float = option(
        1000.0, "Of an owner's line to the coordinator [Mbit/s].", above=0, is_asked=True
    )
    latency: float = option(
        0.0, "Milliseconds of a message over that line and its reply.", least=0, is_asked=True
    )


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """The promise; epsilon None: no privacy noise. ledger: None: none is kept."""

    epsilon: float | None = option(
        None,
        f"The promise; smaller is stricter. Default: {DEFAULT_EPSILON:g}.",
        above=0,
        is_asked=True,
    )
    delta: float = option(
        DEFAULT_DELTA,
        "Its failure probability.",
        above=0,
        below=1,
        cure="; 1e-5 is usual",
        is_asked=True,
    )
    colluders: int = option(
        0, "Parties that may pool all they see with the coordinator.", least=0, is_asked=True
    )
    ledger: Path | None = option(
        None, "Folder with a ledger per party, which refuses an overdraft."
    )


@dataclass(frozen=True, kw_only=True)
class EncryptionOptions:
    """Keys, ring, who computes. cover: None: nobody can stand in, and all must stay."""

    cover: int | None = option(
        None,
        "Parties that can stand in for others who vanish during training; so many that collude "
        "have every key. Default: nobody can, and all must stay.",
        of=" or ".join(UNDER_CKKS),
        cure=": with secure-aggregation, start again without the party that vanished",
    )
    profile: str = option(
        "secure",
        "secure (128 bits), or fast-insecure: a toy ring for tests.",
        choices=PROFILES,
        of=" or ".join(UNDER_CKKS),
        cure=": leave it out, secure-aggregation is fast at 128 bits",
    )
    ring_dim: int | None = option(
        None,
        "Ring dimension, a power of two. Default: smallest secure.",
        of=" or ".join(UNDER_CKKS),
        cure=": leave it out, secure-aggregation takes the smallest secure ring",
    )
    workers: int = option(
        0,
        "Processes that compute on groups of encrypted rows for the coordinator (extra workers); "
        "the run is the same to the bit. With 0 it computes itself.",
        least=0,
        of=ENCRYPTED_ROWS,
        cure=": leave it out",
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What is kept of a run; out: None: nothing."""

    inference: bool = option(
        False,
        "Standard errors, intervals and odds ratios, by secure sums at the released model. With "
        "privacy they take half of the budget.",
    )
    evaluate: bool = option(
        False,
        "Judge the model on the rows that owners hold back (--held-out), by a secure sum. With "
        "privacy it takes a quarter of the budget.",
    )
    however_noisy: bool = option(
        False,
        "With --evaluate: also where noise will leave nothing of its figures, else refused.",
    )
    out: Path | None = option(
        None, "Run folder: model, report, transcript. An earlier run is moved aside."
    )
    keep_messages: bool = option(
        False,
        "Keep every message, for cohort audit transcript. At 128 bits about 130 MB per party, and "
        "4 MB more per iteration.",
    )


@dataclass(frozen=True, kw_only=True)
class SimulationConfig(
    DataOptions, TrainingOptions, BudgetOptions, PrivacyOptions, EncryptionOptions, OutputOptions
):
    """One `cohort simulate`: see the groups.

    Raises:
        ParameterError: a field is out of range; the message names field, value, bound and cure.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", protocol_name(self.protocol))
        for name in ("targets", "exclude"):
            object.__setattr__(self, name, names_in(getattr(self, name)))
        for each in options_of(SimulationConfig):
            object.__setattr__(self, each.name, _checked(each, getattr(self, each.name)))
        if self.within is not None:
            Limits.of(self.within)
        self._check_owners()
        if self.protocol == ANY:
            alternatives(self)
        else:
            self._check_belonging()
            self._check_rule()
        self._check_outcome()
        if self.keep_messages and self.out is None:
            raise ParameterError("keep_messages needs a run folder: add --out FOLDER")
        if self.inference and self.model not in WITH_INFERENCE:
            raise ParameterError(
                f"inference with model={self.model!r}: standard errors are known of "
                f"{', '.join(WITH_INFERENCE)}"
            )
        if self.evaluate and not self.held_out:
            raise ParameterError(
                "evaluate needs rows that training does not use: add --held-out 0.2"
            )
        if self.ledger is not None and self.epsilon is None:
            raise ParameterError("ledger needs a privacy promise: leave out --no-privacy")

    @property
    def is_regression(self) -> bool:
        """Whether numeric targets are predicted."""
        return model_named(self.model).numeric

    def _check_owners(self) -> None:
        """Parties, and those that collude or stand in; the plan checks the rest."""
        parties, cover, colluders = self.parties, self.cover, self.colluders
        if parties is None and not self.split.startswith("by:"):
            raise ParameterError(f"split={self.split!r} needs parties, the number of data owners")
        if parties is not None and colluders >= parties:
            raise ParameterError(
                f"colluders={colluders} must be below parties={parties}: someone has to be honest"
            )
        if cover is None or self.protocol not in UNDER_CKKS:
            return
        if cover < 2 or (parties is not None and cover >= parties):
            raise ParameterError(
                f"cover={cover} is outside 2 … parties - 1: so many parties stand in for those "
                "that vanish"
            )
        if self.epsilon is not None and cover - 1 < colluders:
            raise ParameterError(
                f"cover={cover} gives {cover} colluding parties every key, which is not above "
                f"colluders={colluders}: take --cover {colluders + 1} or more"
            )

    def _check_belonging(self) -> None:
        """Refuse what the model or the protocol would drop without a word."""
        taken = model_named(self.model).protocols
        if self.protocol not in taken:
            raise ParameterError(
                f"protocol={self.protocol} does not train model {self.model}: take "
                f"{' or '.join(taken)}"
            )
        # What does not go with the model comes first: the protocol may be one of these.
        options = options_of(SimulationConfig)
        for each in sorted(options, key=lambda option: _owners(option)[0] in UPDATES):
            value, of = getattr(self, each.name), each.metadata["of"]
            told = f"{option_name(each)}={value} is an option of"
            if not of or value == each.default:
                continue
            owners = _owners(each)
            if owners[0] in MODELS and not {self.model, self.protocol} & set(owners):
                which = of.replace(" or encrypted-model", ", or of --protocol encrypted-model")
                raise ParameterError(f"{told} --model {which}: leave it out for {self.model}")
            is_ridge = each.name == "ridge" and self.is_regression
            if owners[0] in UPDATES and self.protocol not in owners and not is_ridge:
                raise ParameterError(f"{told} --protocol {of}{each.metadata['cure']}")
        offered = UPDATES[self.protocol]
        if self.update and self.update not in offered:
            others = [name for name, updates in UPDATES.items() if self.update in updates]
            cure = f"; it runs with --protocol {others[0]}" if others else ""
            raise ParameterError(
                f"update={self.update!r} is not one of {', '.join(offered)}, the updates of "
                f"protocol {self.protocol}{cure or suggest(self.update, offered)}"
            )

    def _check_rule(self) -> None:
        """Refuse what no certificate or rule takes, whatever the data."""
        check_options(self)
        if self.update == "clipped-gd" and self.clip is None:
            raise ParameterError("update='clipped-gd' needs a clip: add --clip C, such as 0.5")
        for each in options_of(TrainingOptions):
            value = getattr(self, each.name)
            if each.name == "batches" and self.protocol == ENCRYPTED_MODEL:
                continue
            if each.name in OF_DUAL and value != each.default and self.update != "scd":
                raise ParameterError(
                    f"{each.name}={value} is an option of --update scd: leave it out for "
                    f"{self.update or self.protocol}"
                )
        ring = self.ring_dim
        if ring is not None and (ring < 2 or ring & (ring - 1)):
            raise ParameterError(
                f"ring_dim={ring} is no power of two: take {1 << ring.bit_length()}, or leave it "
                "out for the smallest secure one"
            )

    def _check_outcome(self) -> None:
        """What is predicted: a label, or numeric targets."""
        unnamed = self.data is not None and self.schema is None
        if not self.is_regression:
            if self.targets:
                raise ParameterError(
                    f"target={','.join(self.targets)} is numeric, which model {self.model} does "
                    f"not predict: add --model {REGRESSIONS[0]}, or name a yes/no column by --label"
                )
            if unnamed and self.label is None:
                raise ParameterError(
                    "label is missing: name the column to predict, such as --label y, or give a "
                    "--schema, which names it"
                )
            return
        if unnamed and not self.targets:
            raise ParameterError(
                f"target is missing: model {self.model} predicts numeric columns, such as "
                "--target Y1,Y2; or give a --schema, which names them"
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


def _owners(each: Field[Any]) -> list[str]:
    """Models or protocols that an option belongs to; one that is empty: all."""
    return str(each.metadata["of"]).split(" or ")


def alternatives(config: SimulationConfig) -> tuple[SimulationConfig, ...]:
    """The configuration with each protocol that goes with its other options.

    Where sums are opened every round, plain gradient descent is the default update: what they
    disclose is noisy already, so that no rule has to bound the iterates.

    Raises:
        ParameterError: no protocol does, or several might and no budget chooses.
    """
    if config.protocol != ANY:
        return (config,)
    if config.within is None:
        raise ParameterError("protocol='any' needs a budget to choose by: add --within 10m")
    fitting, refusals = list[SimulationConfig](), list[ParameterError]()
    numeric = config.is_regression
    for name in (ENCRYPTED_ROWS,) if numeric else model_named(config.model).protocols:
        update = config.update or ("gd" if name == SECURE_AGGREGATION else "")
        try:
            fitting.append(replace(config, protocol=name, update=update))
        except ParameterError as error:
            refusals.append(error)
    if not fitting:
        raise refusals[0]
    return tuple(fitting)


def options_of(*groups: type, without: tuple[str, ...] = ()) -> tuple[Field[Any], ...]:
    """The fields of some groups."""
    return tuple(f for group in groups for f in fields(group) if f.name not in without)


def option_name(each: Field[Any]) -> str:
    """What a person calls a field."""
    return str(each.metadata["name"] or each.name)


@lru_cache(maxsize=1)
def kinds() -> dict[str, Any]:
    """Type of each field of the configuration."""
    return get_type_hints(SimulationConfig)


def names_in(names: Any) -> tuple[str, ...]:
    """Column names; of a text those that commas separate."""
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(","))
    return tuple(names or ())


def _checked(each: Field[Any], value: Any) -> Any:
    """The value of a field, of its kind and within its bounds."""
    kind, limits = kinds()[each.name], each.metadata
    if value is None and each.name != "data" and type(None) not in get_args(kind):
        raise ParameterError(f"{option_name(each)}=None: leave it out for {each.default}")
    if value is None or kind is Any or get_origin(kind) is tuple:
        return value
    told, wanted = f"{option_name(each)}={shown(value)}", {kind, *get_args(kind)}
    if wanted & {int, float}:
        is_whole = int in wanted
        is_fine = isinstance(value, numbers.Integral if is_whole else numbers.Real)
        if isinstance(value, bool) or not is_fine or not math.isfinite(float(value)):
            what = "whole number" if is_whole else "finite number"
            raise ParameterError(f"{told} is not a {what}: give one")
        above, least, below = limits["above"], limits["least"], limits["below"]
        is_low = not value > above if above is not None else least is not None and value < least
        if below is not None and (is_low or not value < below):
            bracket = "[" if above is None else "("
            raise ParameterError(f"{told} is outside {bracket}0, {below:g}){limits['cure']}")
        if is_low and above is not None:
            raise ParameterError(f"{told} must be positive{limits['cure']}")
        if is_low:
            raise ParameterError(f"{told} is below {least:g}{limits['cure']}")
    elif Path in wanted:
        if not isinstance(value, (str, os.PathLike)):
            raise ParameterError(f"{told} is not a path or None")
        value = Path(value)
    elif wanted & {str, bool} and not isinstance(value, bool if bool in wanted else str):
        raise ParameterError(f"{told} is a {type(value).__name__}: give {limits['words']}")
    choices = limits["choices"]
    if choices and value not in choices:
        known = [str(choice) for choice in choices]
        raise ParameterError(f"{told} is not one of {', '.join(known)}{suggest(str(value), known)}")
    return value
