"""Federated regression with scikit-learn's interface: `fit(shards)`, then `predict`.

All owners are simulated in this process, by the same roles, messages and code as in a deployment.
"""

from __future__ import annotations

import numbers
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from parties.data.encode import encode_scored, encode_shard
from parties.data.schema import MOST_CLASSES, Schema
from parties.data.table import cell_text, read_table
from protocols.errors import DataError, ParameterError, SchemaError
from protocols.models.registry import model_named
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.words import count
from sims import owners as shards
from sims import row_terms
from sims.config import SimulationConfig
from sims.datasets import require_spread
from sims.documents import coefficients
from sims.owners import Columns, Rows, load_schema
from sims.result import RunResult, classes_of, label_of, targets_of
from sims.simulation import Event, noise_root, run

Array = NDArray[np.float64]

NOT_HELD_OUT = "no rows were held out: every score in result_ is on the training rows"
NO_NOISE = (
    "epsilon=None: no privacy noise was added, so the model itself may reveal rows; encryption "
    "protects them during the training only"
)
SEEDED = (
    "NOT PRIVATE: random_state is set, and whoever knows it can repeat the split and subtract the "
    "noise; leave it None for real rows"
)
INSECURE = "INSECURE: profile='fast-insecure' uses a toy ring without security, for tests only"
INFERRED = (
    "the column schema was inferred from the private data, which leaks about them; a deployment "
    "needs a public schema (schema=)"
)


class FederatedEstimator(BaseEstimator, ABC):
    """Fits on the rows of several owners, or splits all rows among simulated ones.

    A subclass says which columns are predicted (`_choose_columns`), how owners' rows become tables
    and a schema (`_tables`), what a run is asked to do beyond the common (`_options`), and what it
    keeps of the result (`_keep`).
    """

    parties: int | None
    split: str
    iterations: int | None
    epsilon: float | None
    delta: float
    colluders: int
    schema: Schema | str | os.PathLike[str] | None
    profile: str
    random_state: Any
    verbose: int
    out: str | os.PathLike[str] | None

    @abstractmethod
    def _choose_columns(self, given: Schema | None) -> Columns: ...

    @abstractmethod
    def _tables(
        self, owners: Mapping[str, Rows], given: Schema | None, notes: list[str]
    ) -> tuple[dict[str, pd.DataFrame], Schema]: ...

    @abstractmethod
    def _options(self) -> dict[str, Any]: ...

    @abstractmethod
    def _keep(self, result: RunResult) -> None: ...

    # -- fit --------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, offset: Any = None) -> Any:
        """Train on the rows of several owners, each checked before any key is made.

        Args:
            X: one shard per owner, in a list, or in a dict by name. A shard is a pair (X, y), a
                DataFrame with the columns `label` or `targets`, or the path of a table's file
                with them. Or, to simulate, all rows: array or frame, shape (rows, columns),
                to be split.
            y: labels of all rows, shape (rows,), or targets, (rows,) or (rows, targets); None for
                shards, and for a frame that holds them.
            sample_weight: how much each row counts, 0 or more, shape (rows,); of shards one array
                each, in a list or a dict as they are. Not with protocol "encrypted-rows", but of
                regressions on sums. A `schema` declares their bound, or has their column.
            offset: added to each row's score, with coefficient 1, as of sample_weight: the
                logarithm of exposures for "poisson".

        Returns:
            self.

        Raises:
            DataError: rows or labels cannot be used; the message names the shard.
            SchemaError: no schema can be inferred, or the given one does not fit.
            ParameterError: a parameter is out of range.
            PrivacyError: no setting is certified for this epsilon and delta.
            ValueError, TypeError: scikit-learn's own, for an X or y that is to be split.
        """
        given = load_schema(self.schema)
        self._columns = columns = self._choose_columns(given)
        if y is None and isinstance(X, pd.DataFrame) and columns.are_in(X):
            y = columns.outcome(X)
        config, owners = self._read(X, y)
        shards.check_alike(owners)
        first = next(iter(owners.values()))
        validate_data(self, first.cells, skip_check_array=True)
        notes = self._notes(given)
        beside: dict[str, str | None] = {}
        for term, values in (("weight", sample_weight), ("offset", offset)):
            owners, beside[term] = row_terms.attached(owners, given, term, values)
        factors = self._class_factors(owners, beside["weight"])
        if factors:
            owners, given, beside["weight"] = row_terms.class_weighted(
                owners, given, beside["weight"], factors
            )
        self._beside = {term: name for term, name in beside.items() if name is not None}
        tables, schema = self._tables(owners, given, notes)
        config = self._penalised(config, sum(map(len, tables.values())), schema)

        root = noise_root(config)
        if y is not None:
            pooled = pd.concat(tables.values(), ignore_index=True)
            encode_shard(pooled, schema)  # complains about rows as given, before they are shuffled
            rng = np.random.default_rng(root)
            label = schema.label.names[0]
            tables = shards.split_by_owner(X, pooled, config, columns, label, rng)
        data = shards.encode(tables, schema, notes)
        result = run(config, data, root, self._report)
        self._keep(result)
        self.n_iter_ = result.plan.rounds
        self.schema_ = result.schema
        self.notes_ = list(result.notes)
        self.result_ = result
        return self

    def _read(self, X: Any, y: Any) -> tuple[SimulationConfig, dict[str, Rows]]:
        """Rows by owner, or one nameless owner of rows that are to be split."""
        columns = self._columns
        if y is not None:
            config = self._config(None if columns.split else self.parties, self.split)
            return config, {"": Rows.read(X, y, columns)}
        given = shards.by_name(X, type(self).__name__)
        config = self._config(len(given), "even")
        return config, {name: shards.read_shard(name, s, columns) for name, s in given.items()}

    # -- predict ----------------------------------------------------------------------------------

    def _scores(self, X: Any, offset: Any) -> Array:
        """Of rows as in training, shape (rows,) or (rows, targets); offset: None: of the frame.

        Raises:
            DataError: the model was trained with offsets, and there are none; or others.
        """
        check_is_fitted(self)
        cells = self._columns.cells(X)
        validate_data(self, cells, reset=False, skip_check_array=True)
        frame = read_table(cells)
        frame.columns = pd.Index([column.name for column in self.schema_.columns], dtype=object)
        known = self.schema_.offset
        if known is not None:
            if offset is None and isinstance(X, pd.DataFrame) and known.name in X.columns:
                offset = X[known.name]
            if offset is None:
                raise DataError("the model was trained with offsets: give offset=, one per row")
            frame[known.name] = np.asarray(offset)
        elif offset is not None:
            raise DataError("the model was trained without offsets: leave offset out")
        x, added = encode_scored(frame, self.schema_)
        scores: Array = (x @ self._weights).T + added
        return scores.T

    def _class_factors(self, owners: Mapping[str, Rows], weight: str | None) -> dict[Any, float]:
        """Of the rows of each label; empty: all alike. weight: name of the weights' column."""
        return {}

    def __getstate__(self) -> Any:
        """Leave out `result_`, which holds training rows and the optimum without noise."""
        return {k: v for k, v in super().__getstate__().items() if k != "result_"}

    # -- parameters -------------------------------------------------------------------------------

    def _config(self, parties: int | None, split: str) -> SimulationConfig:
        return SimulationConfig(
            parties=parties,
            split=split,
            rounds=self.iterations,
            epsilon=self.epsilon,
            delta=self.delta,
            colluders=self.colluders,
            seed=_seed(self.random_state),
            profile=self.profile,
            out=self.out,  # type: ignore[arg-type]
            **self._options(),
        )

    def _penalised(self, config: SimulationConfig, rows: int, schema: Schema) -> SimulationConfig:
        """The configuration, now that the number of all training rows is known."""
        return config

    def _notes(self, given: Schema | None) -> list[str]:
        applies = {
            NO_NOISE: self.epsilon is None,
            SEEDED: self.random_state is not None,
            INSECURE: self.profile == "fast-insecure",
            INFERRED: given is None,
            NOT_HELD_OUT: True,
        }
        return [note for note, true in applies.items() if true]

    def _report(self, event: Event) -> None:
        if self.verbose and event.kind == "phase":
            print(f"[{type(self).__name__}] {event.phase}", file=sys.stderr, flush=True)
        elif self.verbose > 1 and event.kind == "progress":
            progress = f"{event.phase} {event.done}/{event.total}"
            print(f"[{type(self).__name__}] {progress}", file=sys.stderr, flush=True)


def _seed(random_state: Any) -> int | None:
    """None, or a seed of at least 0; a RandomState gives its next number."""
    if random_state is None:
        return None
    if not isinstance(random_state, numbers.Integral):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if random_state < 0:
        raise ParameterError(f"random_state={random_state} is negative: give 0 or more, or None")
    return int(random_state)


class FederatedLogisticRegression(ClassifierMixin, FederatedEstimator):
    """Logistic regression that several data owners train without showing rows to anyone.

    Labels of three or more classes take protocol="secure-aggregation", where every noisy sum, and
    so every iterate, is public; the others are of two classes.

    By default every owner encrypts its rows and its share of the noise under a joint key (threshold
    CKKS); the coordinator trains on ciphertexts; the owners decrypt the final model together. Other
    values of `protocol`: "encrypted-model", rows stay home; "secure-aggregation", only sums of
    noisy gradients are opened, in every round.

    Privacy: with `epsilon`, the model is (epsilon, delta)-differentially private against everyone
    who sees it, and against the coordinator together with `colluders` owners; not so if
    `random_state` is set, the schema is inferred or the profile is "fast-insecure". `notes_` says
    what of this applies. `result_` is never private: it holds training rows and the optimum
    without noise, for the person who simulates. Pickles and copies of the estimator leave it out.

    Args:
        parties: owners among whom `fit(X, y)` splits the rows, at least 2. Not for `fit(shards)`.
        split: how: "even", "dirichlet:ALPHA", or "by:COLUMN" of a frame, one owner per value
            whatever `parties` says. Not for `fit(shards)`.
        protocol: "encrypted-rows", "encrypted-model" or "secure-aggregation".
        update: "" for the usual one: with epsilon "quadratic-gd", few steps on rows that a private
            sum has whitened; else "barrier"; with C "nag-opt"; or another of `cohort simulate
            --update`.
        multi_class: of three or more classes: "softmax", one model of all of them, or
            "one-vs-rest", a model of each.
        class_weight: factor of each label's weights, {label: weight}, from public figures; or
            "balanced", as scikit-learn's, which counts labels and so takes epsilon=None. Not with
            "encrypted-rows".
        C: as scikit-learn's, the weight of all rows' losses beside half the squared norm of the
            coefficients, here in scaled units and with the intercept; of "secure-aggregation"
            alone. None: no penalty but what the rule has.
        iterations: None: chosen.
        degree: of the sigmoid polynomial; None: chosen.
        epsilon: privacy loss, > 0; None: NO privacy noise.
        delta: in (0, 1).
        colluders: owners that may conspire with the coordinator, below the number of owners.
        learning_rate: of gd and nag with epsilon=None; None: chosen.
        radius: the polynomial is good on [-radius, radius]; as learning_rate.
        label: label column of frames; None: the schema's.
        schema: Schema or path of a schema file; None: inferred from the data, which a deployment
            may not do.
        profile: "secure" (128 bits) or "fast-insecure" (toy ring, for tests).
        random_state: None: the operating system's randomness; otherwise the split and the noise
            can be repeated and the run is NOT PRIVATE. Keys and encryption are random in any case,
            so two runs differ by the error of CKKS.
        verbose: 0 silent, 1 phases, 2 iterations, on stderr.
        out: folder for plan, model, transcript and report; None: none is written.

    Attributes:
        coef_: float64 array, shape (1, features), over `schema_.feature_names` (categories are
            one-hot), log-odds of `classes_[1]` in the data's own units; of several classes shape
            (classes, features), in the order of `classes_`.
        intercept_: float64 array, shape (1,) or (classes,).
        classes_: the labels as given, sorted.
        n_features_in_: number of columns; feature_names_in_: their names, for frames.
        n_iter_: iterations done.
        schema_: the column schema in use.
        notes_: list of sentences that whoever uses the model should know.
        result_: RunResult: the plaintext twin, costs, plan, scores on the training rows.

    Predictions scale, clamp and clip rows exactly as in training: a row within the schema's bounds
    scores coef_ @ x + intercept_, any other is moved to the bounds first.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(7)
        >>> def ward(rows):
        ...     X = rng.normal(size=(rows, 2))
        ...     return X, np.where(X[:, 0] > X[:, 1], "ill", "well")
        >>> model = FederatedLogisticRegression(
        ...     update="gd", iterations=3, degree=3, epsilon=None,  # epsilon=1.0 for real rows
        ...     profile="fast-insecure",  # "secure" for real rows: 128 bits
        ... )
        >>> model = model.fit({"north": ward(30), "south": ward(50)})
        >>> model.classes_.tolist(), model.coef_.shape
        (['ill', 'well'], (1, 2))
        >>> model.predict([[2.0, -2.0], [-2.0, 2.0]]).tolist()
        ['ill', 'well']
    """

    protocol: str
    update: str
    multi_class: str
    C: float | None
    class_weight: Mapping[Any, float] | str | None
    degree: int | None
    learning_rate: float | None
    radius: float | None
    label: str | None

    def __init__(
        self,
        *,
        parties: int | None = 3,
        split: str = "even",
        protocol: str = ENCRYPTED_ROWS,
        update: str = "",
        multi_class: str = "softmax",
        C: float | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        iterations: int | None = None,
        degree: int | None = None,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        colluders: int = 0,
        learning_rate: float | None = None,
        radius: float | None = None,
        label: str | None = None,
        schema: Schema | str | os.PathLike[str] | None = None,
        profile: str = "secure",
        random_state: Any = None,
        verbose: int = 0,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})

    def decision_function(self, X: Any, offset: Any = None) -> Array:
        """Log-odds of `classes_[1]`, shape (rows,); of several classes scores (rows, classes).

        Args:
            X: array or frame with the columns of the training, shape (rows, columns). In a frame,
                the label and the column of split="by:COLUMN" are left out, and so is, with
                `schema` given, every column that it does not name.
            offset: of each row, shape (rows,), for a model that was trained with offsets; None:
                the frame's column of the schema's name.

        Raises:
            NotFittedError: `fit` comes first.
            SchemaError, DataError: see `parties.data.encode.encode_features`.
            ValueError: scikit-learn's own, for wrong columns or a wrong shape.
        """
        scores: Array = self._scores(X, offset) * self._sign
        return scores

    def predict(self, X: Any, offset: Any = None) -> NDArray[Any]:
        """The more likely label of each row, shape (rows,); see `decision_function`."""
        scores = self.decision_function(X, offset)
        labels: NDArray[Any] = self.classes_[model_named(self._model).called(scores)]
        return labels

    def predict_proba(self, X: Any, offset: Any = None) -> Array:
        """Probabilities of `classes_`, shape (rows, classes); see `decision_function`."""
        scores, model = self.decision_function(X, offset), model_named(self._model)
        if model.several:
            return model.decode(scores)
        return np.column_stack([expit(-scores), expit(scores)])

    def __sklearn_tags__(self) -> Any:
        """Two classes only, but where sums are opened; two runs differ by the error of CKKS."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.protocol == SECURE_AGGREGATION
        tags.non_deterministic = True
        return tags

    def _choose_columns(self, given: Schema | None) -> Columns:
        labels = () if self.label is None else (self.label,)
        return Columns.choose(labels, self.split, given)

    def _tables(
        self, owners: Mapping[str, Rows], given: Schema | None, notes: list[str]
    ) -> tuple[dict[str, pd.DataFrame], Schema]:
        first = next(iter(owners.values()))
        most = MOST_CLASSES if self.protocol == SECURE_AGGREGATION else 2
        self._classes = classes = shards.classes_in(owners, most)
        several = len(classes) > 2
        named = self._columns.labels
        label = named[0] if named else shards.free_name(first.frame)
        texts = tuple(cell_text(value) for value in classes)
        codes = {name: np.searchsorted(classes, owner.labels) for name, owner in owners.items()}
        tables = {
            name: owner.frame.assign(**{label: np.array(texts)[codes[name]]})
            for name, owner in owners.items()
        }
        schema = given
        if schema is None:
            pooled = pd.concat(tables.values(), ignore_index=True)
            positive = None if several else texts[1]
            schema = shards.infer(pooled, label, positive, notes, self._beside)
        self._model = self.multi_class if several else "logistic"
        self._sign, self._order = 1, None
        if several:
            self._order = shards.order_of(classes_of(schema), texts)
        else:
            self._sign = shards.sign_of(label_of(schema), texts, notes)
        return tables, schema

    def _options(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "update": self.update,
            "degree": self.degree,
            "learning_rate": self.learning_rate,
            "radius": self.radius,
        }

    def _class_factors(self, owners: Mapping[str, Rows], weight: str | None) -> dict[Any, float]:
        if self.class_weight is None:
            return {}
        private = self.epsilon is not None
        return row_terms.class_factors(owners, self.class_weight, weight, private=private)

    def _penalised(self, config: SimulationConfig, rows: int, schema: Schema) -> SimulationConfig:
        """With ridge 1 / (C N b), b the bound of weights: what is trained on has weights over b.

        C sum_i s_i l_i + |w|^2 / 2 is C N b times mean_i (s_i / b) l_i + ridge |w|^2 / 2.

        Raises:
            ParameterError: C is no positive number, or the protocol takes no ridge.
        """
        config = replace(config, model=self._model)
        if self.C is None:
            return config
        if isinstance(self.C, bool) or not isinstance(self.C, numbers.Real) or not self.C > 0:
            raise ParameterError(f"C={self.C!r} must be a positive number: 1.0 is usual, or None")
        if config.protocol != SECURE_AGGREGATION:
            raise ParameterError(
                f"C={self.C} is of protocol={SECURE_AGGREGATION!r}: leave it out for "
                f"{config.protocol}, whose rules bound the coefficients by themselves"
            )
        # The best of the rules with a ridge, where none is asked for.
        update = config.update or "nag-opt"
        bound = 1.0 if schema.weight is None else schema.weight.bound
        return replace(config, ridge=1 / (float(self.C) * rows * bound), update=update)

    def _keep(self, result: RunResult) -> None:
        several, released = result.model.several, result.weights
        self._weights = released[:, self._order] if several else released
        coef, intercept = coefficients(result.schema, self._weights, self._model)
        self.coef_, self.intercept_ = self._sign * coef, self._sign * intercept
        self.classes_ = self._classes


class FederatedRegression(RegressorMixin, FederatedEstimator):
    """Regression of one or several targets that several data owners train on encrypted sums.

    Every owner encrypts X^T X and X^T Y of its rows, and its share of the noise, under a joint key
    (threshold CKKS); the coordinator trains on ciphertexts, at a cost that does not depend on the
    number of rows; the owners decrypt the final model together.

    Privacy: with `epsilon`, the model is (epsilon, delta)-differentially private against everyone
    who sees it, and against the coordinator together with `colluders` owners; not so if
    `random_state` is set, the schema is inferred or the profile is "fast-insecure". `notes_` says
    what of this applies. `result_` is never private. Pickles and copies leave it out.

    Args:
        protocol: "encrypted-rows"; or "encrypted-model", of "linear" and "poisson" without privacy:
            rows stay home.
        model: "linear"; "improved-lffr": linear in the logit of the target, whose predictions bend
            towards the ends of the target's range; "lffr": a sigmoid of the range by squared
            error; or "poisson": one target that counts from 0, without privacy. For the last two
            owners encrypt rows.
        parties: as of `FederatedLogisticRegression`, and so are epsilon, delta, colluders, schema,
            profile, random_state, verbose and out.
        split: "even" or "by:COLUMN".
        iterations: None: 30, of "lffr" with privacy 10.
        ridge: weight of the squared coefficients (scaled units) beside the mean squared error;
            None: 0, or of sums what privacy needs at least. "poisson" has none.
        floor: least curvature that is inverted, over the largest, without privacy: a smaller one
            learns columns of little curvature sooner; None: 1/16, of "lffr" 0.01 alone.
        targets: target column or columns of frames; None: the schema's, or those of y.

    Attributes:
        coef_: float64 array, shape (targets, features), over `schema_.feature_names` (categories
            are one-hot), in the data's own units; of the others in units of the score. Shape
            (features,) where y was one column.
        intercept_: float64 array, shape (targets,), or one number.
        n_features_in_: number of columns; feature_names_in_: their names, for frames.
        n_iter_: iterations done.
        schema_: the column schema in use, with the public range of every target.
        notes_: list of sentences that whoever uses the model should know.
        result_: RunResult: the plaintext twin, least squares, costs, plan, errors on the
            training rows.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(7)
        >>> def ward(rows):
        ...     X = rng.normal(size=(rows, 2))
        ...     return X, np.column_stack([X[:, 0] - X[:, 1], X.sum(axis=1)])
        >>> model = FederatedRegression(
        ...     epsilon=None,  # 1.0 for real rows
        ...     profile="fast-insecure",  # "secure" for real rows: 128 bits
        ... )
        >>> model = model.fit({"north": ward(30), "south": ward(50)})
        >>> model.coef_.round(1).tolist()
        [[1.0, -1.0], [1.0, 1.0]]
        >>> model.predict([[1.0, -1.0]]).round(1).tolist()
        [[2.0, 0.0]]
    """

    model: str
    protocol: str
    ridge: float | None
    floor: float | None
    targets: str | Sequence[str] | None

    def __init__(
        self,
        *,
        model: str = "linear",
        protocol: str = ENCRYPTED_ROWS,
        parties: int | None = 3,
        split: str = "even",
        iterations: int | None = None,
        ridge: float | None = None,
        floor: float | None = None,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        colluders: int = 0,
        targets: str | Sequence[str] | None = None,
        schema: Schema | str | os.PathLike[str] | None = None,
        profile: str = "secure",
        random_state: Any = None,
        verbose: int = 0,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Targets in their own units, shape (rows, targets), or (rows,) where y was one column.

        Args:
            X: array or frame with the columns of the training. In a frame, the targets and the
                column of split="by:COLUMN" are left out, and so is, with `schema` given, every
                column that it does not name. Rows are scaled and clamped as in training.
            offset: as of `FederatedLogisticRegression.decision_function`.

        Raises:
            NotFittedError: `fit` comes first.
            SchemaError, DataError: see `parties.data.encode.encode_features`.
        """
        scores = self._scores(X, offset)
        scaled = model_named(self._model).decode(scores)
        values = targets_of(self.schema_.label).to_data_units(scaled)
        return values[:, 0] if self._flat else values

    def __sklearn_tags__(self) -> Any:
        """Several targets at once; two runs differ by the error of CKKS."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.non_deterministic = True
        return tags

    def _choose_columns(self, given: Schema | None) -> Columns:
        flat = isinstance(self.targets, str)
        named = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets or ())
        return Columns.choose(named, self.split, given, numeric=True, flat=flat)

    def _tables(
        self, owners: Mapping[str, Rows], given: Schema | None, notes: list[str]
    ) -> tuple[dict[str, pd.DataFrame], Schema]:
        first = next(iter(owners.values()))
        self._flat = first.flat and first.labels.shape[1] == 1
        names = self._columns.labels or first.names or _names(first)
        for name, owner in owners.items():
            with shards.naming(name):
                if owner.labels.shape[1] != len(names):
                    raise DataError(
                        f"y has {owner.labels.shape[1]} columns where {len(names)} targets "
                        f"({', '.join(names)}) are due"
                    )
        tables = {
            name: owner.frame.assign(**dict(zip(names, owner.labels.T, strict=True)))
            for name, owner in owners.items()
        }
        pooled = pd.concat(tables.values(), ignore_index=True)
        schema = given or shards.infer(pooled, list(names), None, notes, self._beside)
        if schema.label.names != names:
            raise SchemaError(f"the schema's targets are not {', '.join(names)}")
        require_spread(pooled, names, f"the {count(len(pooled), 'sample')}")
        return tables, schema

    def _options(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "protocol": self.protocol,
            "ridge": self.ridge,
            "floor": self.floor,
        }

    def _keep(self, result: RunResult) -> None:
        self._weights, self._model = result.weights, result.plan.model
        coef, intercept = coefficients(result.schema, result.weights, result.plan.model)
        self.coef_: Any = coef[0] if self._flat else coef
        self.intercept_: Any = float(intercept[0]) if self._flat else np.asarray(intercept)


def _names(rows: Rows) -> tuple[str, ...]:
    """Names for targets that have none: y, or y1, y2 and so on."""
    outputs = rows.labels.shape[1]
    stems = ["y"] if outputs == 1 else [f"y{k + 1}" for k in range(outputs)]
    return tuple(shards.free_name(rows.frame, stem) for stem in stems)
