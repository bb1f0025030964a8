"""What the files with secrets load, and what a party's process may load; see `cli.trusted`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from ciphercohort.cli.trusted import KERNEL, Source, Trusted
from parties.kernel import ROOMS

ROOT = Path(__file__).parents[2]
TRUSTED = Trusted.of(ROOT)
README = (ROOT / "parties/kernel/README.md").read_text()
MOST_LINES = 10726
OF_PROTOCOLS = {"encrypted-rows": 4582, "encrypted-model": 5497, "secure-aggregation": 4867}
"""The goal is 5,500 of each."""


def test_secrets_load_arithmetic_alone() -> None:
    """Whatever else a file with secrets loads is a mistake, or stands in the README."""
    own = {name for name in TRUSTED.kernel if name.startswith(f"{KERNEL}.")}
    listed = re.search(r"\n```text\n(.*?)```", README, re.S)
    assert listed
    assert {*TRUSTED.kernel} - own == {*listed[1].split()}
    assert own == {*Source(ROOT).below(KERNEL)} - {KERNEL}
    assert TRUSTED.libraries == ["cryptography", "numpy", "openfhe", "scipy"]
    assert TRUSTED.total(TRUSTED.kernel) <= MOST_LINES


@pytest.mark.parametrize("protocol", OF_PROTOCOLS)
def test_a_protocol_has_its_own_files(protocol: str) -> None:
    own = TRUSTED.protocols[protocol]
    assert {*own} < {*TRUSTED.kernel} and TRUSTED.total(own) <= OF_PROTOCOLS[protocol]
    rooms = {n.split(".")[2] for n in own if n.startswith(f"{KERNEL}.") and n.count(".") > 2}
    assert rooms - {"integers"} == {*ROOMS[protocol]}


def test_the_readme_names_every_file_with_a_secret() -> None:
    kernel = ROOT / "parties/kernel"
    paths = [path.relative_to(kernel) for path in kernel.rglob("*.py")]
    whole = ("integers", "study", "sums")  # rooms of arithmetic, but for what is named
    due = {str(p) for p in paths if p.name not in ("__init__.py", "sheet.py")}
    due = {name for name in due if name.partition("/")[0] not in whole}
    due |= {f"{room}/" for room in whole}
    assert [name for name in sorted(due) if f"| `{name}` |" not in README] == []


def test_a_party_loads_neither_coordinator_nor_simulation() -> None:
    """The process that holds rows and keys, whatever it is asked."""
    roots = {name.partition(".")[0] for name in TRUSTED.lines}
    assert roots == {"parties", "protocols"}


def test_what_no_list_has_is_beyond_them() -> None:
    loaded = ["parties.kernel.run", "parties.reader.cells", "protocols.plan.kinds", "sims.owners"]
    assert TRUSTED.beyond(loaded, TRUSTED.kernel) == ["protocols.plan.kinds", "sims.owners"]


@pytest.mark.parametrize(
    "text",
    [
        "import protocols.other",
        "from protocols import other",
        "from protocols.other import RunPlan",
        "def late():\n    from protocols.other import RunPlan",
        "from ...protocols import other",
        "from ...protocols.other import RunPlan",
        "if not TYPE_CHECKING:\n    import protocols.other",
        "if TYPE_CHECKING:\n    import os\nelse:\n    import protocols.other",
        'TABLE = {"rows": "protocols.other:RunPlan"}',
        'found = import_module(f"protocols.{name}")',
    ],
)
def test_every_way_to_load_a_module_is_seen(text: str, tmp_path: Path) -> None:
    for name, content in {"parties/kernel/a.py": text, "protocols/other.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert "protocols.other" in Source(tmp_path).loaded(["parties.kernel.a"])


def test_types_alone_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "protocols").mkdir()
    (tmp_path / "protocols/other.py").write_text("")
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import protocols.other\n"
    (tmp_path / "protocols/a.py").write_text(text)
    assert Source(tmp_path).loaded(["protocols.a"]) == ["protocols.a"]


def test_the_command() -> None:
    printed = CliRunner().invoke(app, ["party", "trusted", "--json"])
    found = json.loads(printed.stdout)
    assert found["kernel_lines"] == sum(found["kernel"].values()) == TRUSTED.total(TRUSTED.kernel)
    assert found["agent_modules"] + found["verifier_modules"] == len(TRUSTED.lines)
    words = CliRunner().invoke(app, ["party", "trusted"]).stdout
    assert all(name in words for name in TRUSTED.kernel)
    sums = CliRunner().invoke(app, ["party", "trusted", "--protocol", "secure-aggregation"]).stdout
    assert "parties.kernel.sums.session" in sums and "parties.kernel.keys" not in sums
    both = ["party", "trusted", "--protocol", "secure-aggregation,encrypted-rows"]
    assert "parties.kernel.keys.session" in CliRunner().invoke(app, both).stdout
    assert CliRunner().invoke(app, ["party", "trusted", "--protocol", "none"]).exit_code == 2
