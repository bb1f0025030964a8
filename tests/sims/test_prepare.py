"""Splits and held-out parts: every row goes to exactly one place, and bad requests are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import CohortError, DataError, ParameterError, SchemaError
from sims.prepare import builtin_dataset, holdout, require_classes, split_rows


def make_frame(rows: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"row": np.arange(rows), "ward": rng.choice(["A", "B", "C"], rows)})
    frame["y"] = (rng.random(rows) < 0.3).astype(int)
    return frame


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def refused(kind: type[CohortError], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_builtin() -> None:
    frame, label = builtin_dataset()
    assert frame.shape == (569, 31) and label == "target"
    require_classes(frame, label)
    assert "choose breast_cancer" in refused(ParameterError, lambda: builtin_dataset("mnist"))


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from(["even", "dirichlet:0.001", "dirichlet:0.3", "dirichlet:1e6"]),
    st.integers(0, 2**32),
)
def test_every_row_goes_to_one_party(rows: int, parties: int, how: str, seed: int) -> None:
    frame = make_frame(rows)
    parties = min(parties, rows)
    shards, names = split_rows(frame, parties, how, "y", np.random.default_rng(seed))
    assert names == [f"party-{k + 1}" for k in range(parties)]
    sizes = [len(shard) for shard in shards]
    assert len(sizes) == parties and min(sizes) >= 1
    assert how != "even" or max(sizes) - min(sizes) <= 1
    together = pd.concat(shards).sort_values("row").reset_index(drop=True)
    pd.testing.assert_frame_equal(together, frame)
    assert all(list(shard.index) == list(range(len(shard))) for shard in shards)


def test_by_column() -> None:
    frame = make_frame(50)
    for parties in (None, 3):
        shards, names = split_rows(frame, parties, "by:ward", "y", rng())
        assert names == ["A", "B", "C"]
        for name, shard in zip(names, shards, strict=True):
            assert list(shard.columns) == ["row", "y"]
            assert sorted(shard["row"]) == frame.index[frame["ward"] == name].tolist()


def test_rows_are_shuffled_by_the_given_source() -> None:
    frame = make_frame(40)
    first, again = (split_rows(frame, 2, "even", "y", rng())[0] for _ in range(2))
    other = split_rows(frame, 2, "even", "y", np.random.default_rng(12))[0]
    pd.testing.assert_frame_equal(first[0], again[0])
    assert not first[0].equals(other[0])
    assert not first[0]["row"].is_monotonic_increasing
    with pytest.raises(TypeError):
        split_rows(frame, 2, "even", "y")  # type: ignore[call-arg]


def test_dirichlet_skews_the_labels_as_alpha_says() -> None:
    frame = make_frame(3000)

    def unevenness(alpha: str) -> float:
        shards, _ = split_rows(frame, 5, f"dirichlet:{alpha}", "y", rng())
        return float(np.std([shard["y"].mean() for shard in shards]))

    assert unevenness("1e5") < 0.02 < 0.1 < unevenness("0.2")


def test_bad_tables() -> None:
    holes = make_frame(9).assign(ward=["A", None, "B"] * 3)
    text = refused(DataError, lambda: split_rows(holes, None, "by:ward", "y", rng()))
    assert "'ward' is missing in 3 of 9 rows" in text
    unlabelled = make_frame(9).assign(y=[1, None, 0] * 3)
    for call in (
        lambda: split_rows(unlabelled, 3, "dirichlet:1", "y", rng()),
        lambda: holdout(unlabelled, 0.2, rng(), "y"),
    ):
        assert "'y' is missing in 3 of 9 rows" in refused(DataError, call)
    assert "'z'" in refused(SchemaError, lambda: split_rows(holes, 3, "even", "z", rng()))
    assert "0 rows" in refused(DataError, lambda: split_rows(holes.head(0), 1, "even", "y", rng()))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.integers(2, 40), st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_holdout_is_stratified(no: int, yes: int, fraction: float, seed: int) -> None:
    frame = pd.DataFrame({"row": np.arange(no + yes), "y": ["no"] * no + ["yes"] * yes})
    train, test = holdout(frame, fraction, np.random.default_rng(seed), "y")
    for part in (train, test):
        require_classes(part, "y")
    for value, count in (("no", no), ("yes", yes)):
        held = int((test["y"] == value).sum())
        assert held == min(max(round(fraction * count), 1), count - 1)
    together = pd.concat([train, test]).sort_values("row").reset_index(drop=True)
    pd.testing.assert_frame_equal(together, frame)


def split(how: str, parties: int | None = 3) -> Callable[[], Any]:
    return lambda: split_rows(make_frame(9), parties, how, "y", rng())


def hold(fraction: float = 0.5, labels: Any = None) -> Callable[[], Any]:
    frame = make_frame(9) if labels is None else pd.DataFrame({"a": range(6), "y": labels})
    return lambda: holdout(frame, fraction, rng(), "y")


REFUSED: list[tuple[Callable[[], Any], type[CohortError], tuple[str, ...]]] = [
    *(
        (split(how), ParameterError, (repr(how), "use even, by:COLUMN or dirichlet:ALPHA"))
        for how in (*("", "even:2", "by:", "dirichlet:x"),)
    ),
    *(
        (split(f"dirichlet:{alpha}"), ParameterError, (f"alpha='{alpha}'", "[0.001, 1e+06]"))
        for alpha in ("0", "nan", "1e7", "1e-9")
    ),
    (split("even", 0), ParameterError, ("parties=0 is not within [1, 9]",)),
    (split("dirichlet:1", 10), ParameterError, ("parties=10 is not within [1, 9]",)),
    (split("even", None), ParameterError, ("needs a number of parties",)),
    (split("by:ward", 2), ParameterError, ("parties=2 does not equal the 3 different values",)),
    (split("by:y", None), ParameterError, ("names the label",)),
    (split("by:wrad", None), SchemaError, ("'wrad' is not in the table; did you mean 'ward'",)),
    *(
        (hold(fraction), ParameterError, (f"test_share={fraction}", "(0, 1)"))
        for fraction in (0.0, 1.0, float("nan"))
    ),
    (hold(labels=[0] * 6), DataError, ("1 different value in the table where 2 are needed",)),
    (hold(labels=[0, 1, 2] * 2), DataError, ("3 different values",)),
    (hold(labels=[0, 1, 0, 0, 0, 0]), DataError, ("a single row",)),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_refusals(call: Callable[[], Any], kind: type[CohortError], words: tuple[str, ...]) -> None:
    text = refused(kind, call)
    assert all(word in text for word in words), text


def test_require_classes() -> None:
    frame = make_frame(20)
    one = frame[frame["y"] == 1]
    text = refused(DataError, lambda: require_classes(one, "y"))
    assert "1 different value in the training part" in text
