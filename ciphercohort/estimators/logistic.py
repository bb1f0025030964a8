"""`FederatedLogisticRegression`: a label, as scikit-learn's classifiers take it."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin

from ciphercohort.estimators.base import Array, FederatedEstimator
from ciphercohort.job.config import SimulationConfig
from ciphercohort.results.documents import coefficients
from ciphercohort.results.result import RunResult, classes_of, label_of
from parties.reader.cells import cell_text
from parties.reader.schema import MOST_CLASSES, Schema
from protocols.errors import ParameterError
from protocols.models.model import Classifier
from protocols.models.registry import model_named, model_of
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from sims import owners as shards
from sims import row_terms
from sims.owners import Columns, Rows
from sims.prepare import inferred


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
            sum has whitened; else "nag" on such rows, and then the maximum likelihood, by exact
            sums; with C "nag-opt"; or another of `cohort simulate
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
        ledger: folder with a ledger per owner, by name, in which every fit counts, those of a
            cross-validation or a `GridSearchCV` as well: one that would overdraw the budget, the
            promise of the first fit or what budget.json there grants, is refused. None: none is
            kept, and what fits cost together is up to you.

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
        ...     ill = X[:, 0] - X[:, 1] + rng.logistic(size=rows) > 0
        ...     return X, np.where(ill, "ill", "well")
        >>> model = FederatedLogisticRegression(
        ...     epsilon=None,  # 1.0 for real rows
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
        ledger: str | os.PathLike[str] | None = None,
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
            SchemaError, DataError: see `parties.reader.shard.encode_scored`.
            ValueError: scikit-learn's own, for wrong columns or a wrong shape.
        """
        scores: Array = self._scores(X, offset) * self._sign
        return scores

    def predict(self, X: Any, offset: Any = None) -> NDArray[Any]:
        """The more likely label of each row, shape (rows,); see `decision_function`."""
        scores = self.decision_function(X, offset)
        labels: NDArray[Any] = self.classes_[model_of(Classifier, self._model).called(scores)]
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
        texts = tuple(str(cell_text(value)) for value in classes)
        codes = {name: np.searchsorted(classes, owner.labels) for name, owner in owners.items()}
        tables = {
            name: owner.frame.assign(**{label: np.array(texts)[codes[name]]})
            for name, owner in owners.items()
        }
        schema = given
        if schema is None:
            pooled = pd.concat(tables.values(), ignore_index=True)
            positive = None if several else texts[1]
            schema = inferred(
                pooled,
                label,
                notes,
                positive=positive,
                several=positive is None,
                row_norm=None if self._config(2, "even").is_unclipped else "auto",
                **self._beside,
            )
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
        coef, intercept = coefficients(result.encoding, self._weights, self._model)
        self.coef_, self.intercept_ = self._sign * coef, self._sign * intercept
        self.classes_ = self._classes
