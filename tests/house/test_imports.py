"""Who may import what: the rules that need single modules, read from the source of every module.

The layers are import-linter's (``make check``). These rules hold for modules that do not exist yet,
see imports inside functions and by name, and need nothing installed.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.scripts import ROOT

PACKAGES = ("ciphercohort", "protocols", "parties", "coordinator", "sims")

#: External package -> the only modules (or packages, with all below them) that may import it.
ALLOWED = {
    "openfhe": ("protocols.ckks", "parties.kernel.keys.key_share"),
    "flwr": (
        "ciphercohort.flower",
        "coordinator.flower_app",
        "coordinator.flower_waits",
        "parties.flower_app",
        "parties.flower_link",
        "parties.flower_node",
        "parties.flower_site",
        "ciphercohort.deploy.flower_commands",
        "ciphercohort.deploy.flower_job",
        "sims.local",
        "sims.lab.studies.flower",
        "sims.lab.studies.flower_secagg",
    ),
    "distributed": ("coordinator.dask_workers",),
    "dask": ("coordinator.dask_workers",),
    "torch": (
        "parties.verifier.torch_step",
        "sims.lab.baselines_torch",
        "sims.lab.studies.flower.apps",
    ),
    "opacus": ("parties.verifier.torch_step", "sims.lab.baselines_torch"),
}
#: What Flower keeps stable. The in-process grid and the file that tells its releases apart may
#: need more; they are the only such files.
PUBLIC_FLOWER = ("flwr.app", "flwr.clientapp", "flwr.serverapp")
#: Modules that run on an unfit interpreter, or before anything is installed.
STANDARD_LIBRARY_ONLY = (
    "ciphercohort",
    "protocols",
    "protocols.errors",
    "protocols.platform",
    "parties",
    "coordinator",
    "sims",
)


def module_name(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str, is_package: bool = False) -> set[str]:
    """Absolute names that a module imports anywhere, also ``from a import b`` as ``a.b``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                keep = module.split(".")
                keep = keep[: len(keep) - node.level + is_package]
                base = ".".join([*keep, *([base] if base else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            first = node.args[0]
            if (
                name in ("import_module", "__import__", "importorskip")
                and isinstance(first, ast.Constant)
                and isinstance(first.value, str)
            ):
                found.add(first.value)
    return found


def within(name: str, parents: tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(parent + ".") for parent in parents)


def violations(module: str, imported: set[str]) -> list[str]:
    """Broken rules of one module, in words."""
    broken = []
    for name in sorted(imported):
        top = name.split(".")[0]
        if top in ALLOWED and not within(module, ALLOWED[top]):
            broken.append(f"{module} imports {name}; only {', '.join(ALLOWED[top])} may")
        if (
            top == "flwr"
            and module.endswith((".flower_app", ".flower_job", ".flower_node", ".flower_site"))
            and not within(name, PUBLIC_FLOWER)
        ):
            broken.append(f"{module} imports {name}; stay with {', '.join(PUBLIC_FLOWER)}")
        if within(name, ("parties.kernel.keys.key_share",)) and not within(
            module, ("parties", "sims")
        ):
            broken.append(f"{module} imports {name}, where the secret key is")
    return broken


ARITHMETIC = {
    "parties",
    "parties.kernel",
    "parties.kernel.integers",
    "parties.kernel.model",
    "parties.kernel.model.clear_rows",
    "parties.kernel.rows",
    "parties.kernel.gram",
    "parties.kernel.gram.sums",
    "parties.kernel.rows.curvature",
    "parties.kernel.sums",
    *(
        f"parties.kernel.{room}.{path.stem}"
        for room in ("integers", "sums")
        for path in (ROOT / "parties/kernel" / room).glob("*.py")
        if path.stem not in ("session", "aggregate_share")
    ),
}
"""Of the kernel, functions of arrays that hold nothing, which plans compute with, too."""


@cache
def everything() -> dict[str, set[str]]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = module_name(path)
            source = path.read_text(encoding="utf-8")
            found[name] = imports(source, name, path.name == "__init__.py")
    return found


def test_external_packages_stay_where_they_belong() -> None:
    assert [
        broken for name, found in everything().items() for broken in violations(name, found)
    ] == []


@pytest.mark.parametrize("module", STANDARD_LIBRARY_ONLY)
def test_modules_of_an_unfit_interpreter_need_nothing_installed(module: str) -> None:
    allowed = {*sys.stdlib_module_names, "protocols"}
    modules = everything()
    assert {name.split(".")[0] for name in modules[module]} <= allowed
    first_party = {name for name in modules[module] if name in modules}
    assert first_party <= set(STANDARD_LIBRARY_ONLY)


def reachable(start: tuple[str, ...], modules: dict[str, set[str]]) -> set[str]:
    """First-party modules that importing any module of the packages ``start`` loads."""
    todo = [name for name in modules if within(name, start)]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            parents = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)}
            todo += [other for other in modules[name] | parents if other in modules]
    return seen


def test_the_coordinator_cannot_reach_a_secret_key() -> None:
    reached = reachable(("coordinator",), everything())
    assert "protocols.errors" in reached  # the walk does follow imports
    assert {name for name in reached if within(name, ("parties", "sims"))} <= ARITHMETIC


def test_commands_and_parties_run_without_torch() -> None:
    reached = reachable(
        ("ciphercohort.cli.app", "parties.verifier.party", "parties.agent", "coordinator"),
        everything(),
    )
    assert "sims.simulation" in reached
    assert not reached & {
        "parties.verifier.torch_step",
        "sims.lab.baselines_torch",
        "ciphercohort.estimators.torch_training",
    }


@pytest.mark.parametrize(
    ("module", "source", "broken"),
    [
        ("coordinator.coordinator", "import openfhe", True),
        ("protocols.rows.training", "def late():\n    import openfhe", True),
        ("protocols.rows.training", "import importlib\nimportlib.import_module('openfhe')", True),
        ("ciphercohort.report.report", "__import__('torch')", True),
        ("protocols.exchange.messages", "from flwr.app import Message", True),
        ("coordinator.flower_app", "from flwr.server.superlink import state", True),
        ("parties.flower_node", "import flwr.supernode.nodestate", True),
        ("coordinator.coordinator", "from distributed import Client", True),
        ("coordinator.coordinator", "from parties.kernel.keys.key_share import KeyShare", True),
        ("coordinator.coordinator", "from ..parties.kernel.keys import key_share", True),
        ("protocols.steps.decrypt", "import parties.kernel.keys.key_share", True),
        ("protocols.ckks.context", "import openfhe", False),
        ("parties.kernel.keys.key_share", "from openfhe import PrivateKey", False),
        ("coordinator.flower_app", "from flwr.serverapp import ServerApp", False),
        ("parties.verifier.torch_step", "import torch, opacus", False),
    ],
)
def test_a_broken_rule_is_seen(module: str, source: str, broken: bool) -> None:
    """And what is allowed passes."""
    assert bool(violations(module, imports(source, module))) == broken


def test_an_indirect_way_to_the_key_is_seen() -> None:
    found = {
        "coordinator.coordinator": {"protocols.rows.training"},
        "protocols.rows.training": {"parties.kernel.keys.key_share"},
    }
    modules = {name: set[str]() for name in ("coordinator", "protocols", "parties")} | found
    modules["parties.kernel.keys.key_share"] = set()
    assert "parties.kernel.keys.key_share" in reachable(("coordinator",), modules)
