"""`cohort party encode`: what rows would contribute, in a file that only their owner reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from ciphercohort.deploy.party import encode_table
from parties.reader.schema import (
    CategoricalColumn,
    Classes,
    Label,
    NumericColumn,
    Offset,
    Schema,
    Targets,
    Weight,
)
from parties.reader.shard import encode_shard

COLUMNS = (NumericColumn("age", 0, 100), CategoricalColumn("ward", ("A", "B")))
OUTCOMES = {
    "label": (Label("died", "yes", "no"), ("died=yes",)),
    "classes": (Classes("died", ("no", "yes", "unclear")), ("died=no", "died=yes", "died=unclear")),
    "targets": (Targets((NumericColumn("stay", 0, 9),)), ("stay",)),
}
FRAME = pd.DataFrame(
    {"age": [41, 52, 63], "ward": ["A", "B", "A"], "died": ["yes", "no", "no"], "stay": [1, 2, 9],
     "times": [1, 2, 4], "years": [1, 5, 9]}
)  # fmt: skip


@pytest.mark.parametrize("kind", OUTCOMES)
def test_the_file_is_the_shard(kind: str, tmp_path: Path) -> None:
    label, names = OUTCOMES[kind]
    terms = {} if kind == "classes" else {"offset": Offset("years", 1, 9)}
    schema = Schema(
        columns=COLUMNS, label=label, scaling="range", weight=Weight("times", 4), **terms
    )
    schema.save(tmp_path / "schema.json")
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "x.npy"
    found = encode_table(tmp_path / "t.csv", tmp_path / "schema.json", out)
    assert found == ("age", "ward=A", "ward=B", "bias", *names, "weight", *terms)
    shard, array = encode_shard(FRAME, schema), np.load(out)
    assert array.shape == (3, len(found)) and (array[:, :4] == shard.x).all()
    assert (array[:, 4 : 4 + len(names)] == shard.y.reshape(3, -1)).all()
    assert (array[:, 4 + len(names)] == shard.weight).all()
    assert not terms or (array[:, -1] == shard.offset).all()
    assert out.stat().st_mode & 0o777 == 0o600


def test_the_command_says_that_it_is_private_and_overwrites_nothing(tmp_path: Path) -> None:
    Schema(columns=COLUMNS, label=Label("died", "yes", "no"), scaling="range").save(
        tmp_path / "schema.json"
    )
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    call = ["party", "encode", "t.csv", "--schema", "schema.json", "--out", "x.npy"]
    call = [str(tmp_path / word) if "." in word else word for word in call]
    done = CliRunner().invoke(app, call)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.exit_code == 0 and "is PRIVATE" in said and "4 died=yes" in said
    before = (tmp_path / "x.npy").read_bytes()
    again = CliRunner().invoke(app, call)
    assert again.exit_code == 2 and "exists: choose another name" in again.stdout + again.stderr
    assert (tmp_path / "x.npy").read_bytes() == before
    FRAME.assign(age="Zaphod").to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "x.npy").unlink()
    refused = CliRunner().invoke(app, call)
    assert refused.exit_code == 2 and "Zaphod" not in refused.stdout + refused.stderr
    assert not (tmp_path / "x.npy").exists()
