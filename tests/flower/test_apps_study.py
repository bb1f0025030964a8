"""The study of Flower's example apps: what it changes, and what it gives them for data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sims.lab.studies.flower import fedeca
from sims.lab.studies.flower.apps import stand_ins
from sims.lab.studies.flower.apps.__main__ import CASES, CLIENT, SERVER, Case, changed, trained


def app(folder: Path, server: str) -> Path:
    package = folder / "package"
    package.mkdir()
    (package / "client_app.py").write_text(f"{CLIENT}\napp = ClientApp()\n")
    (package / "server_app.py").write_text(f"{SERVER}\n{server}\n    grid=grid,\n)\n")
    return folder


def test_five_lines_are_changed(tmp_path: Path) -> None:
    """The fifth is the app's dependency."""
    folder = app(tmp_path, "result = strategy.start(")
    assert changed(folder, CASES["quickstart-sklearn"]) == 5
    assert "SecureSum(strategy).start(" in (folder / "package" / "server_app.py").read_text()
    assert "ClientApp(mods=[secure_sum_mod])" in (folder / "package" / "client_app.py").read_text()


def test_a_fraction_that_is_raised_is_a_line(tmp_path: Path) -> None:
    case = Case(edits=trained(), options={"fraction-train": 0.5, "num-server-rounds": 2})
    assert changed(app(tmp_path, "result = strategy.start("), case) == 6


def test_another_version_of_an_app_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"server_app.py has no .*: it is another version"):
        changed(app(tmp_path, "strategy.run("), CASES["quickstart-sklearn"])


@pytest.mark.parametrize("name", [*stand_ins.IMAGES, "scikit-learn/iris"])
def test_data_have_the_shape_of_those_that_apps_download(name: str) -> None:
    data = stand_ins.rows_of(name, 1, 20).train_test_split(0.2, seed=1)
    assert (len(data["train"]), len(data["test"])) == (16, 4)
    first = data["train"][0]
    if name in stand_ins.IMAGES:
        key, shape = stand_ins.IMAGES[name]
        assert first[key].shape == shape and first[key].dtype == np.uint8
    else:
        assert set(first) == {"SepalLengthCm", "SepalWidthCm", "PetalLengthCm", "PetalWidthCm",
                              "Species"}  # fmt: skip


def test_numbers_are_found_wherever_they_stand() -> None:
    """In both orders of bytes, at any place; and none that is not there."""
    own = [0.1, -2.5e7, 1 / 3]
    for order in ("<f8", ">f8"):
        for before in range(9):
            store = b"x" * before + np.array(own[:2], order).tobytes() + b"y"
            assert fedeca.found_in(store, own) == 2
    assert fedeca.found_in(np.array(own, "<f4").tobytes() + bytes(64), own) == 0


def test_a_summary_is_read_from_what_a_run_says() -> None:
    line = fedeca.MARK + '{"coef":{"0":0.5},"p":{"0":0.25}}'
    assert fedeca.summaries(f"other\n{line}\nINFO: {line}\n").tolist() == [[0.5, 0.25]] * 2
