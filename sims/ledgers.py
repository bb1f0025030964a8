"""Ledgers of simulated parties: one file per party in a folder, all with the same budget.

The first run with a folder writes its own promise there as every owner's budget (`budget.json`);
whoever edits that file grants more, or less. Parties are known by name, and a simulation deals rows
out anew each time, so a ledger counts what was spent on a party's part of a file, whichever rows
these were.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ciphercohort.job.config import SimulationConfig
from protocols.errors import ParameterError, PrivacyError
from protocols.exchange.private_files import FOLDER_MODE, write_private
from protocols.names import file_stem
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.privacy.loss.ledger import Ledger

BUDGET = "budget.json"
DEMO = "demonstration data"


def open_ledger(config: SimulationConfig, name: str) -> Ledger | None:
    """A party's ledger; None if none is kept.

    Raises:
        ParameterError: the folder's budget cannot be read, or `ledger_path` refuses the name.
    """
    if config.ledger is None or config.epsilon is None:
        return None
    path = config.ledger / BUDGET
    if not path.exists():
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        promise = {"epsilon": config.epsilon, "delta": config.delta}
        write_private(path, f"{json.dumps(promise)}\n".encode())
    try:
        granted = json.loads(path.read_text(encoding="utf-8"))
        epsilon, delta = float(granted["epsilon"]), float(granted["delta"])
    except (OSError, ValueError, LookupError, TypeError):
        raise ParameterError(
            f'{path} is not {{"epsilon": …, "delta": …}}: correct it, or choose another folder'
        ) from None
    kept = ledger_path(config.ledger, name)
    return Ledger(path=kept, epsilon=epsilon, delta=delta, budget=str(path))


def check_whole(config: SimulationConfig, names: Iterable[str]) -> None:
    """Refuse a run of several sessions that would overdraw a budget, before the first is spent.

    Raises:
        PrivacyError: names the party, what the whole run costs beside what is spent, and the cure.
    """
    if config.epsilon is None:
        return
    mu = mu_for_epsilon(epsilon=config.epsilon, delta=config.delta)
    whole = [GaussianEvent(noise_multiplier=1 / mu, count=1)]
    for name in names:
        ledger = open_ledger(config, name)
        if ledger is None:
            return
        try:
            ledger.foresee(dataset_of(config), whole)
        except PrivacyError as error:
            raise PrivacyError(
                f"all sums of this run together, epsilon={config.epsilon:g}, are refused before "
                f"the first by the ledger of {name}: {error}"
            ) from None


def ledger_path(folder: Path, name: str) -> Path:
    """Where the ledger of a party stands, whatever its name: a name may be a value of a column.

    Raises:
        ParameterError: a former version kept the ledger under another name.
    """
    path, former = folder / f"{file_stem(name)}.jsonl", f"{folder}/{name}.jsonl"
    if former != str(path) and os.path.exists(former):
        raise ParameterError(
            f"{former} is the ledger of {name!r} from an earlier version: rename it to {path}"
        )
    return path


def dataset_of(config: SimulationConfig) -> str:
    """Name of the data in the ledgers; empty if none is kept."""
    if config.ledger is None:
        return ""
    if config.data is None:
        return DEMO
    return Path(config.data).name if isinstance(config.data, (str, Path)) else "data in memory"


def spent_lines(config: SimulationConfig, names: tuple[str, ...]) -> Iterator[str]:
    """What each party has spent so far, one sentence each."""
    for name in names:
        ledger = open_ledger(config, name)
        if ledger is None:
            return
        spent = ledger.spent(dataset_of(config))
        yield (
            f"ledger of {name}: spent epsilon {spent.epsilon:.4g} of {ledger.epsilon:g} at delta "
            f"{ledger.delta:g}, in {spent.runs} session{'s' if spent.runs != 1 else ''}"
        )
