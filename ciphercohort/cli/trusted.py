"""What an owner has to trust: the kernel's files, and whatever else the agent's process may load.

Read off the source, whatever is installed beside it: an import counts wherever it stands, inside a
function too, and so does a module that is named in a table (`"protocols.rows.plan:RowsPlan"`), or a
whole package that a formatted text begins with (`f"protocols.models.{name}"`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from parties.kernel import EVERY, ROOMS
from parties.policy import BESIDE, STUDY
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION

OURS = ("ciphercohort", "coordinator", "parties", "protocols", "sims")
KERNEL, READER = "parties.kernel", "parties.reader"
# Of a deployed party: the process with rows and keys, and the one that drives it.
OWNERS, DRIVES = ("parties.agent.__main__", "parties.agent.hosted"), "parties.verifier"
_PREFIX = re.compile(rf"((?:{'|'.join(OURS)})(?:\.\w+)*)\.")
_NAMED = re.compile(rf"((?:{'|'.join(OURS)})(?:\.\w+)+)(?::\w+)?")


@dataclass(frozen=True)
class Source:
    """This project's modules, as files below a folder."""

    root: Path

    @cached_property
    def files(self) -> dict[str, Path]:
        """Files by the names of their modules."""
        found = {}
        for package in OURS:
            for path in (self.root / package).rglob("*.py"):
                parts = path.relative_to(self.root).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    def below(self, package: str) -> list[str]:
        """A package's modules."""
        return sorted(n for n in self.files if n == package or n.startswith(f"{package}."))

    def lines(self, module: str) -> int:
        """Of its file, comments and docstrings included."""
        return len(self.files[module].read_text().splitlines())

    def loaded(self, modules: Iterable[str], but: Collection[str] = ()) -> list[str]:
        """These modules and all of ours that they may load, by name; but: not these packages."""
        found, due, out = set[str](), list(modules), tuple(f"{package}." for package in but)
        while due:
            name = due.pop()
            if name in found or name not in self.files or f"{name}.".startswith(out):
                continue
            found.add(name)
            for each in self._names(name):
                due += self.below(each[:-2]) if each.endswith(".*") else [each]
            if "." in name:
                due.append(name.rpartition(".")[0])
        return sorted(found)

    def kernel(self, protocols: Collection[str] = EVERY) -> list[str]:
        """What an owner's kernel may load that takes part in these; see `parties.kernel`."""
        rooms = {room for protocol in protocols for room in ROOMS[protocol]}
        every = {room for rooms in ROOMS.values() for room in rooms}
        own = [f"{KERNEL}.serving", *(n for room in rooms for n in self.below(f"{KERNEL}.{room}"))]
        return self.loaded(own, {f"{KERNEL}.{room}" for room in every - rooms})

    def libraries(self, modules: Iterable[str]) -> list[str]:
        """What these modules load that is neither ours nor Python's."""
        roots = {each.partition(".")[0] for name in modules for each in self._names(name)}
        return sorted(roots - {*OURS, *sys.stdlib_module_names})

    @cached_property
    def _names(self) -> Callable[[str], Collection[str]]:
        return cache(lambda module: {*self._read(module)})  # a dozen questions, one reading

    def _read(self, module: str) -> Iterator[str]:
        """Whatever a module imports or names, packages and members too."""
        hidden = set[ast.AST]()
        package = module if self.files[module].name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(self.files[module].read_text())):
            if isinstance(node, ast.If) and _for_types(node.test):
                hidden.update(each for child in node.body for each in ast.walk(child))
            elif node in hidden:
                continue
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) + 1 - node.level]
                home = ".".join([*above * bool(node.level), *filter(None, [node.module])])
                yield home
                yield from (f"{home}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                named = _PREFIX.fullmatch(str(node.values[0].value))
                if named:
                    yield f"{named[1]}.*"
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = _NAMED.fullmatch(node.value)
                if named:
                    yield named[1]


def _for_types(test: ast.expr) -> bool:
    """Whether it is TYPE_CHECKING, and not its opposite."""
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


@dataclass(frozen=True)
class Trusted:
    """Modules by what they are for an owner.

    kernel: secrets, and all that their files load; protocols: what of it an owner needs who takes
    part in one alone, and what BESIDE adds; reader: what else sees rows as cells;
    agent: what else the process with both may load: its store, ledger, settings; verifier: what the
    process that drives it loads beside: plans, certificates, messages, steps, sockets; libraries:
    of others, that the kernel loads.
    """

    lines: dict[str, int]
    kernel: list[str]
    protocols: dict[str, list[str]]
    reader: list[str]
    agent: list[str]
    verifier: list[str]
    libraries: list[str]

    @classmethod
    def of(cls, root: Path) -> Trusted:
        """Of the source below a folder."""
        source = Source(root)
        kernel = source.kernel()
        protocols = {name: source.kernel([name]) for name in EVERY if name not in BESIDE}
        for name in BESIDE:
            first = [SECURE_AGGREGATION] if name == STUDY else [ENCRYPTED_ROWS, ENCRYPTED_MODEL]
            both, without = source.kernel([*first, name]), source.kernel(first)
            protocols[name] = [each for each in both if each not in without]
        own = source.loaded(OWNERS, but=[DRIVES])
        reader = [n for n in source.below(READER) if n in own and n not in kernel]
        agent = [n for n in own if n not in (*kernel, *reader)]
        known = {*kernel, *reader, *agent}
        driven = source.loaded(source.below(DRIVES))
        return cls(
            {name: source.lines(name) for name in {*driven, *known}},
            kernel,
            protocols,
            reader,
            agent,
            [name for name in driven if name not in known],
            source.libraries(kernel),
        )

    def total(self, modules: Iterable[str]) -> int:
        """Lines of modules."""
        return sum(self.lines[name] for name in modules)

    def of_protocols(self, names: Iterable[str]) -> list[str]:
        """What of the kernel an owner needs who takes part in these."""
        return sorted({module for name in names for module in self.protocols[name]})

    def beyond(self, loaded: Iterable[str], kernel: Iterable[str]) -> list[str]:
        """Of what a process with rows and keys has loaded, what is on no list of what it may.

        kernel: modules of it that it may load.
        """
        return sorted({*loaded} - {*kernel, *self.reader, *self.agent})

    def to_dict(self) -> dict[str, object]:
        """For JSON: counts, and the lines of each of the kernel's modules."""
        return {
            "kernel_lines": self.total(self.kernel),
            "kernel": {name: self.lines[name] for name in self.kernel},
            "protocols": {
                protocol: {"lines": self.total(names), "modules": names}
                for protocol, names in self.protocols.items()
            },
            "libraries": self.libraries,
            "agent_modules": len(self.lines) - len(self.verifier),
            "agent_lines": self.total(self.lines) - self.total(self.verifier),
            "verifier_modules": len(self.verifier),
            "verifier_lines": self.total(self.verifier),
        }
