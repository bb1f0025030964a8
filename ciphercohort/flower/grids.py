"""A grid around another one: what is not changed goes through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid


class WrappedGrid(Grid):
    """Hands everything on to `self._grid`."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, *arguments: Any) -> None:
        """See `Grid`."""
        self._grid.set_run(*arguments)

    @property
    def run(self) -> Any:
        """See `Grid`."""
        return self._grid.run

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """See `Grid`."""
        return self._grid.create_message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        """See `Grid`."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """See `Grid`."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """See `Grid`."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """See `Grid`."""
        return self._grid.send_and_receive(messages, timeout=timeout)
