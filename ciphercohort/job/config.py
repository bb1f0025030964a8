"""What a simulation is asked to do: every option once, with its words, bounds and default.

The command line, the Python functions and `coordinator.toml` are made from these groups, and all
of them are refused here, before any data are read or a key is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from ciphercohort.job.limits import Limits
from ciphercohort.job.option_checks import check_belonging, check_outcome, check_owners, check_rule
from ciphercohort.job.options import (
    HOWEVER_NOISY,
    DeployOptions,
    PlanOptions,
    checked,
    names_in,
    option,
    option_name,
    options_of,
)
from ciphercohort.job.places import check_places
from protocols.errors import ParameterError
from protocols.exchange.documents import suggest
from protocols.models.registry import CLASSIFIERS, MODELS, model_named
from protocols.names import (
    DEFAULT_COLLUDERS,
    ENCRYPTED_MODEL,
    ENCRYPTED_ROWS,
    SECURE_AGGREGATION,
    UNDER_CKKS,
    protocol_name,
)
from protocols.updates.registry import ANYWHERE, IN_THE_CLEAR, UPDATES, VARIANTS

if TYPE_CHECKING:
    from protocols.privacy.calibrate.figures import Wanted

PROFILES = ("secure", "fast-insecure")
WITH_INFERENCE = ("logistic", "linear", "poisson")
"""Models whose standard errors are known."""
USUAL_MODEL = {"targets": "linear", "classes": "softmax"}
"""Where none is asked for, by the key of a schema's label; else logistic."""
DEGREES = (3, 5, 7, 9, 11, 13, 15)
DEFAULT_EPSILON, DEFAULT_DELTA, DEFAULT_PARTIES = 1.0, 1e-5, 3
ANY = "any"
BY_BUDGET = "any: with --within, which then is the default, the best of the three."
"""Protocol that a budget chooses."""
FORMER = {"interval": "radius", "holdout": "test_share"}
"""Names that options had before, which still are taken."""


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
        "Share of the table that belongs to no owner: test rows, in the open, for the report. "
        "0: every row is trained on, and none is left to test on.",
        least=0,
        below=1,
        cure="; 0.2 is usual, 0 trains on every row",
        is_asked=True,
    )
    exclude: tuple[str, ...] = option((), "Columns to leave out; a,b, or repeated.")
    include: tuple[str, ...] = option((), "The only columns to use; a,b, or repeated.")
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
        "",
        "logistic (a label of two values); softmax or one-vs-rest (a label of three or more, with "
        "--protocol secure-aggregation); or of numeric targets, several at once: linear, or "
        "improved-lffr (predictions bend towards the ends of the range), both on encrypted sums, "
        "or lffr (a sigmoid of the target's range, on encrypted rows); or poisson (one target that "
        "counts from 0, on encrypted rows, without privacy). Of numeric targets all also run "
        "with --protocol encrypted-model, without privacy but for lffr, and linear with "
        "secure-aggregation. Default: logistic, linear or softmax, by the outcome of the schema; "
        "without one linear with --target, else logistic.",
        choices=tuple(MODELS),
        is_asked=True,
    )
    protocol: str = option(
        ENCRYPTED_ROWS,
        "encrypted-rows: every row encrypted once, owners offline between refreshes; "
        "encrypted-model: rows stay home, and meet the encrypted model there, round by round; "
        "secure-aggregation: one small encrypted sum a round, owners online, every iterate public; "
        f"{BY_BUDGET}",
        choices=(*UPDATES, ANY),
        is_asked=True,
    )
    update: str = option(
        "",
        "Update rule. Default: on rows that a private sum has whitened gd with privacy, "
        "which quadratic-gd then is, else nag; of numeric targets nag, or gd, lffr with privacy "
        "gd; of softmax and one-vs-rest nag-opt with privacy, else nag. Everywhere: "
        f"{', '.join(ANYWHERE)}. "
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
        "what privacy needs at least; of scd 0.01.",
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
        "Of scd's batches: cyclic (public) or poisson (secret).",
        choices=("cyclic", "poisson"),
    )
    moment_epsilon: float | None = option(
        None,
        "Promise of the noisy sum of products of columns that whitens the rows of a run without "
        "privacy, for it alone. Default: 1 where no --update is asked for, else they stay as they "
        "are.",
        above=0,
        of=" or ".join(UNDER_CKKS),
        cure=": leave it out",
    )
    seed: int | None = option(None, "Repeatable split and noise: NOT PRIVATE.", least=0)
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
        DEFAULT_COLLUDERS,
        "Parties that may pool all they see with the coordinator.",
        least=0,
        is_asked=True,
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
        "Standard errors, intervals and odds ratios, by secure sums at the trained model; the "
        "model that is released is that of this table. With privacy they take half of the budget.",
    )
    as_trained: bool = option(
        False,
        "Release the model as trained. Without privacy, and with --inference, it else ends at the "
        "estimates of its table: without privacy the maximum likelihood, by a few exact secure "
        "sums, where no --update and no --ridge is asked for.",
    )
    evaluate: bool = option(
        False,
        "Judge the model on the rows that owners hold back (--held-out), by a secure sum. With "
        "privacy it takes a quarter of the budget.",
    )
    however_noisy: bool = option(
        False,
        HOWEVER_NOISY,
    )
    out: Path | None = option(
        None, "Run folder: model, report, transcript. An earlier run is moved aside."
    )
    keep_messages: bool = option(
        False,
        "Keep every message, for cohort verify. At 128 bits about 90 MB per party and "
        "4 MB an iteration; of an encrypted model 140 and 7.",
    )
    replicas: str = option(
        "none",
        "Owners that compute what the coordinator does, on everybody's replies, and answer that "
        "alone: all, one, none.",
        choices=("all", "one", "none"),
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
        model = self.model or usual_model(self.schema, self.targets)
        object.__setattr__(self, "model", model)
        for name in ("targets", "exclude", "include"):
            object.__setattr__(self, name, names_in(getattr(self, name)))
        for each in fields(self):
            value = checked(each, kinds()[each.name], getattr(self, each.name))
            object.__setattr__(self, each.name, value)
        if self.within is not None:
            Limits.of(self.within)
        check_owners(self)
        if self.protocol == ANY:
            alternatives(self)
        else:
            check_belonging(self)
            check_rule(self)
        check_outcome(self)
        if self.keep_messages and self.out is None:
            raise ParameterError("keep_messages needs a run folder: add --out FOLDER")
        if self.inference and self.model not in WITH_INFERENCE:
            raise ParameterError(
                f"inference with model={self.model!r}: standard errors are known of "
                f"{', '.join(WITH_INFERENCE)}"
            )
        if self.inference and self.as_trained:
            raise ParameterError(
                "as_trained with inference: the model of a run is that of its table of "
                "coefficients; leave one of them out"
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

    @property
    def is_unclipped(self) -> bool:
        """Whether rows stay as long as they are, where the schema is not given: nothing asks."""
        asked = self.update or self.epsilon is not None or self.protocol not in UNDER_CKKS
        return not asked and self.model == "logistic" and self.batches == 1

    @property
    def ends_at_maximum(self) -> bool:
        """Whether exact sums follow a training without privacy, though no table is asked for."""
        asked = self.update or self.ridge or self.epsilon is not None or self.as_trained
        return not asked and self.model in WITH_INFERENCE

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of training, standard errors and evaluation, in mu^2 of the promise."""
        from protocols.statistics.inference.budget import shares

        return shares(inference=self.inference, evaluation=self.evaluate)

    def for_training(self) -> SimulationConfig:
        """With what is left of the promise for training, where what follows takes its part."""
        if self.epsilon is None or not (self.inference or self.evaluate):
            return self
        from protocols.statistics.inference.budget import training_part

        epsilon, delta = training_part(self.epsilon, self.delta, self.shares[0])
        return replace(self, epsilon=epsilon, delta=delta)

    def wanted(self) -> Wanted:
        """What calibration is asked for."""
        from protocols.privacy.calibrate.figures import Wanted

        return Wanted(**{each.name: getattr(self, each.name) for each in fields(Wanted)})


@lru_cache(maxsize=1)
def kinds() -> dict[str, Any]:
    """Type of each field of the configuration."""
    return get_type_hints(SimulationConfig)


SIMULATE = options_of(
    *(DataOptions, TrainingOptions, BudgetOptions, PrivacyOptions),
    *(EncryptionOptions, OutputOptions),
)
"""Options of `simulate`."""
PLAN = tuple(each for each in SIMULATE if option_name(each) in PlanOptions.__annotations__)
"""Options of `plan`."""
DEPLOY = tuple(each for each in SIMULATE if option_name(each) in DeployOptions.__annotations__)
"""Options of `Coordinator.init`."""


def configured(function: str = "simulate", /, **options: Any) -> SimulationConfig:
    """The configuration that the options ask for; None is as good as left out.

    Raises:
        ParameterError, DataError: options that do not exist, contradict one another, are out of
            range, or name files that are not there. Nothing was loaded to find out.
    """
    given = known_fields(function, PLAN if function == "plan" else SIMULATE, options)
    if "data" not in given:
        for name, field in (("label", "label"), ("target", "targets")):
            # A plan of regressions counts its targets; it reads no column.
            if field in given and (name, function) != ("target", "plan"):
                raise ParameterError(f"{name}={given[field]!r} is given without data: add --data")
    if "test" in given and "test_share" in given:
        raise ParameterError("test and test_share are both given: choose one of them")
    model = given.get("model") or usual_model(given.get("schema"), given.get("targets"))
    if "within" in given and model == "logistic":
        given.setdefault("protocol", ANY)
    promise = {name: given.pop(name, None) for name in ("epsilon", "delta", "colluders")}
    given |= privacy_fields(given.pop("no_privacy", False), **promise)
    by_column = str(given.get("split", "")).startswith("by:")
    given.setdefault("parties", None if by_column else DEFAULT_PARTIES)
    config = SimulationConfig(**given)
    check_places(config)
    return config


def usual_model(schema: Any, targets: Any) -> str:
    """Where none is named: of the outcome of a schema file, if it can be read; else of targets.

    Read as JSON alone: options are checked before anything is loaded.
    """
    if isinstance(schema, (str, os.PathLike)):
        with suppress(OSError, ValueError, KeyError, TypeError):
            label = json.loads(Path(schema).read_text(encoding="utf-8"))["label"]
            return next((model for key, model in USUAL_MODEL.items() if key in label), "logistic")
    return "linear" if targets else "logistic"


def known_fields(
    function: str, offered: Sequence[Field[Any]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Options by the names of their fields; None is as good as left out.

    Raises:
        ParameterError: the function has no such option, or one is given by two names.
    """
    known = {option_name(f): f.name for f in offered} | {"no_privacy": "no_privacy"}
    known |= {old: name for old, name in FORMER.items() if name in known}
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise ParameterError(
                f"{name} is no option of {function}, which takes "
                f"{', '.join(sorted(known))}{suggest(name, known)}"
            )
        if value is not None and known[name] in found:
            other = next(given for given in options if known[given] == known[name])
            raise ParameterError(f"{other} and {name} are names of one option: leave one out")
        if value is not None:
            found[known[name]] = value
    return found


def privacy_fields(
    no_privacy: bool, epsilon: float | None, delta: float | None, colluders: int | None
) -> dict[str, Any]:
    """Fields of the configuration; the default promise where nothing is chosen.

    Raises:
        ParameterError: the options contradict one another.
    """
    given = {"epsilon": epsilon, "delta": delta, "colluders": colluders}
    given = {name: value for name, value in given.items() if value is not None}
    if no_privacy and given:
        raise ParameterError(
            f"no-privacy is given together with {', '.join(given)}: leave one or the other out"
        )
    if no_privacy:
        return {}
    return {"epsilon": DEFAULT_EPSILON, "delta": DEFAULT_DELTA, **given}


def training_fields(function: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What [training] of coordinator.toml holds, of options `DEPLOY` by name.

    Raises:
        ParameterError: an option does not exist, is out of range, or contradicts another one.
    """
    training = known_fields(function, DEPLOY, options)
    promise = {name: training.pop(name, None) for name in ("epsilon", "delta", "colluders")}
    no_privacy = training.pop("no_privacy", False)
    training = {name: value for name, value in training.items() if value != ""}
    if training.get("protocol") == ANY:
        raise ParameterError(
            f"protocol='any' is chosen by a budget, which {function} has none of: name one of "
            f"{', '.join(UPDATES)}; cohort plan --within says which is best"
        )
    training |= privacy_fields(no_privacy, **promise)
    # Refused here, and not by the first run; the owners are not known yet.
    chosen = SimulationConfig(**training, parties=None, split="by:owner")
    training |= {"protocol": chosen.protocol}
    training |= {"update": chosen.update} if chosen.update else {}
    return training


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
