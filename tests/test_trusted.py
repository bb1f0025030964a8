"""What the files with secrets load, and what a party's process may load; see `sims.trusted`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sims.cli import app
from sims.trusted import KERNEL, Source, Trusted

ROOT = Path(__file__).parents[1]
TRUSTED = Trusted.of(ROOT)
README = (ROOT / "parties/kernel/README.md").read_text()
MOST_LINES = 8450


def test_secrets_load_arithmetic_alone() -> None:
    """Whatever else a file with secrets loads is a mistake, or stands in the README."""
    own = {name for name in TRUSTED.kernel if name.startswith(f"{KERNEL}.")}
    listed = re.search(r"\n```text\n(.*?)```", README, re.S)
    assert listed
    assert {*TRUSTED.kernel} - own == {*listed[1].split()}
    assert TRUSTED.libraries == ["cryptography", "numpy", "openfhe", "scipy"]
    assert TRUSTED.total(TRUSTED.kernel) <= MOST_LINES


def test_the_readme_names_every_file_with_a_secret() -> None:
    files = {path.name for path in (ROOT / "parties/kernel").glob("*.py")} - {"__init__.py"}
    assert [name for name in sorted(files) if f"| `{name}` |" not in README] == []


def test_a_party_loads_neither_coordinator_nor_simulation() -> None:
    """The process that holds rows and keys, whatever it is asked."""
    roots = {name.partition(".")[0] for name in TRUSTED.lines}
    assert roots == {"parties", "protocols"}


@pytest.mark.parametrize(
    "text",
    [
        "import protocols.plan",
        "from protocols import plan",
        "from protocols.plan import RunPlan",
        "def late():\n    from protocols.plan import RunPlan",
        "from ...protocols import plan",
        "from ...protocols.plan import RunPlan",
        "if not TYPE_CHECKING:\n    import protocols.plan",
        "if TYPE_CHECKING:\n    import os\nelse:\n    import protocols.plan",
        'TABLE = {"rows": "protocols.plan:RunPlan"}',
        'found = import_module(f"protocols.{name}")',
    ],
)
def test_every_way_to_load_a_module_is_seen(text: str, tmp_path: Path) -> None:
    for name, content in {"parties/kernel/a.py": text, "protocols/plan.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert "protocols.plan" in Source(tmp_path).loaded(["parties.kernel.a"])


def test_types_alone_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "protocols").mkdir()
    (tmp_path / "protocols/plan.py").write_text("")
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import protocols.plan\n"
    (tmp_path / "protocols/a.py").write_text(text)
    assert Source(tmp_path).loaded(["protocols.a"]) == ["protocols.a"]


def test_the_command() -> None:
    printed = CliRunner().invoke(app, ["party", "trusted", "--json"])
    found = json.loads(printed.stdout)
    assert found["kernel_lines"] == sum(found["kernel"].values()) == TRUSTED.total(TRUSTED.kernel)
    assert found["agent_modules"] == len(TRUSTED.lines) > found["verifier_modules"]
    words = CliRunner().invoke(app, ["party", "trusted"]).stdout
    assert all(name in words for name in TRUSTED.kernel)
