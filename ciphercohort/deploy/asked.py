"""What a command of the centre was asked for: its session notes it, and goes on by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ciphercohort.job.config import DEFAULT_DELTA

PROMISE: dict[str, Any] = {"epsilon": None, "delta": DEFAULT_DELTA, "colluders": 0}
"""Of commands of sums, as they are by default."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A command, and those of its options that are not as they are by default.

    command: `run`, `survival --model cox`; options: by name, as JSON has them; flags: of the
    command line, by name, where they are others.
    """

    command: str
    options: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        command: str,
        given: Mapping[str, Any],
        default: Mapping[str, Any],
        flags: Mapping[str, str] | None = None,
    ) -> Asked:
        """Options as given, and as they are by default."""
        plain = {name: _plain(value) for name, value in given.items()}
        own = {name: x for name, x in plain.items() if x != _plain(default.get(name))}
        others = {k: flag for k, flag in (flags or {}).items() if k in own and k != flag}
        return cls(command=command, options=own, flags=others)

    def other(self, began: Asked, default: Mapping[str, Any]) -> str:
        """What is given now and was another when a session began, in words; empty: nothing."""
        if self.command != began.command:
            return "it is of another command"
        for name, value in self.options.items():
            if value != (first := began.options.get(name, _plain(default.get(name)))):
                own = "without" if first is None else f"with {first!r}"
                return f"{name}={value!r}, and it began {own}"
        return ""

    def line(self) -> list[str]:
        """Its words on a command line, but for folder and session."""
        words = list[str]()
        for name, value in self.options.items():
            flag = f"--{self.flags.get(name, name).replace('_', '-')}"
            if value is True:
                words.append(flag)
                continue
            each = map(_quoted, value) if isinstance(value, list) else [str(value)]
            words += [word for one in each for word in (flag, one)]
        return words


def _plain(value: Any) -> Any:
    """As JSON has it; no names are None."""
    value = list(value) if isinstance(value, (tuple, list)) else value
    return value or None if isinstance(value, (str, list)) else value


def _quoted(name: str) -> str:
    """Of several names, as `each_name` reads it."""
    return '"{}"'.format(name.replace('"', '""')) if {*name} & {*',"'} else name
