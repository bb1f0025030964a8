"""What the clients of `study` do in a round: move a vector, or an app's own training."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from protocols.errors import ParameterError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Workload(Protocol):
    """Both halves of an app, without mods and strategy; small, because Ray copies it."""

    def start(self) -> ArrayRecord:
        """The first model."""
        ...

    def train(self, message: Message, context: Context) -> Message:
        """A client's reply to the model, under "arrays", with its number of examples."""
        ...


@dataclass(frozen=True, slots=True)
class Moved:
    """`values` float32, which every client moves by at most 0.1, by other steps each, at once."""

    values: int

    def __post_init__(self) -> None:
        if self.values < 1:
            raise ParameterError(f"values={self.values} is below 1")

    def start(self) -> ArrayRecord:
        """See `Workload`."""
        return ArrayRecord({"model": Array(np.linspace(-1, 1, self.values, dtype=np.float32))})

    def train(self, message: Message, context: Context) -> Message:
        """See `Workload`."""
        client = int(context.node_config["partition-id"])
        model = message.content.array_records["arrays"]["model"].numpy()
        moved = model * np.float32(0.99)
        moved[:: client + 2] += np.float32(0.1 * np.cos(client))
        arrays, metrics = ArrayRecord({"model": Array(moved)}), MetricRecord({"num-examples": 100})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@dataclass(frozen=True, slots=True)
class App:
    """The Flower app of a folder, made like those in examples/.

    That is: `initial_arrays(context)` beside its ServerApp, `train(message, context)` beside its
    ClientApp. options: as of `flwr run --run-config`, in the place of those in pyproject.toml.

    Raises:
        ParameterError: it is no such folder, or has no such option.
    """

    folder: Path
    options: Sequence[str] = ()

    def __post_init__(self) -> None:
        try:
            unknown = set(tomllib.loads("\n".join(self.options))) - set(self._app["config"])
        except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
            raise ParameterError(f"{self.folder} is no Flower app with options: {error}") from None
        if unknown:
            raise ParameterError(f"the app in {self.folder} has no option {', '.join(unknown)}")

    @property
    def _app(self) -> dict[str, Any]:
        text = (self.folder / "pyproject.toml").read_text(encoding="utf-8")
        app: dict[str, Any] = tomllib.loads(text)["tool"]["flwr"]["app"]
        return app

    @property
    def config(self) -> dict[str, Any]:
        """The run's configuration."""
        return {**self._app["config"], **tomllib.loads("\n".join(self.options))}

    def component(self, name: str) -> tuple[Any, Any]:
        """The module of "serverapp" or "clientapp", and the object itself."""
        if str(self.folder.resolve()) not in sys.path:
            sys.path.insert(0, str(self.folder.resolve()))
        module, _, attribute = str(self._app["components"][name]).partition(":")
        loaded = importlib.import_module(module)
        return loaded, getattr(loaded, attribute)

    def start(self) -> ArrayRecord:
        """See `Workload`."""
        context = Context(0, 0, {}, RecordDict(), self.config)
        arrays: ArrayRecord = self.component("serverapp")[0].initial_arrays(context)
        return arrays

    def train(self, message: Message, context: Context) -> Message:
        """See `Workload`."""
        # Not the client's own: its configuration is bound into what it seals.
        own = Context(
            context.run_id, context.node_id, context.node_config, context.state, self.config
        )
        reply: Message = self.component("clientapp")[0].train(message, own)
        return reply
