"""Data and model: multinomial logistic regression on scikit-learn's digits."""

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

FEATURES, CLASSES = 64, 10


def load_data(partition_id, num_partitions):
    """Rows of one client: 80 % to train, 20 % to test."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    rows = np.array_split(order, num_partitions)[partition_id]
    cut = int(0.8 * len(rows))
    return (x[rows[:cut]] / 16, y[rows[:cut]]), (x[rows[cut:]] / 16, y[rows[cut:]])


def new_arrays():
    """The model before the first round."""
    return [np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES)]


def model_of(arrays, epochs=1):
    """A model that starts from, or predicts with, these arrays."""
    model = LogisticRegression(max_iter=epochs, warm_start=True)
    model.classes_ = np.arange(CLASSES)
    model.coef_, model.intercept_ = (array.copy() for array in arrays)
    return model


def fit(arrays, x, y, epochs):
    """The arrays after some iterations on one client's rows."""
    model = model_of(arrays, epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops long before convergence
        model.fit(x, y)
    # A client without some digit leaves that class as it is.
    coef, intercept = (array.copy() for array in arrays)
    coef[model.classes_], intercept[model.classes_] = model.coef_, model.intercept_
    return [coef, intercept]
