"""Which options of a simulation go together, whatever the data."""

from __future__ import annotations

from collections import Counter
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any

from ciphercohort.job.options import option_name
from protocols.errors import ParameterError
from protocols.exchange.documents import suggest
from protocols.models.registry import MODELS, REGRESSIONS, model_named
from protocols.names import ENCRYPTED_MODEL, UNDER_CKKS
from protocols.privacy.calibrate.options import check_options
from protocols.updates.registry import UPDATES

if TYPE_CHECKING:
    from ciphercohort.job.config import SimulationConfig

OF_DUAL = {"loss", "batches", "schedule"}
"""Options of update scd; batches also of an encrypted model."""


def check_owners(config: SimulationConfig) -> None:
    """Parties, and those that collude or stand in; the plan checks the rest."""
    parties, cover, colluders = config.parties, config.cover, config.colluders
    if parties is None and not config.split.startswith("by:"):
        raise ParameterError(f"split={config.split!r} needs parties, the number of data owners")
    if parties is not None and colluders >= parties:
        raise ParameterError(
            f"colluders={colluders} must be below parties={parties}: someone has to be honest"
        )
    if cover is None or config.protocol not in UNDER_CKKS:
        return
    if cover < 2 or (parties is not None and cover >= parties):
        raise ParameterError(
            f"cover={cover} is outside 2 … parties - 1: so many parties stand in for those "
            "that vanish"
        )
    if config.epsilon is not None and cover - 1 < colluders:
        raise ParameterError(
            f"cover={cover} gives {cover} colluding parties every key, which is not above "
            f"colluders={colluders}: take --cover {colluders + 1} or more"
        )


def check_belonging(config: SimulationConfig) -> None:
    """Refuse what the model or the protocol would drop without a word."""
    taken = model_named(config.model).protocols
    if config.protocol not in taken:
        raise ParameterError(
            f"protocol={config.protocol} does not train model {config.model}: take "
            f"{' or '.join(taken)}"
        )
    # What does not go with the model comes first: the protocol may be one of these.
    for each in sorted(fields(config), key=lambda option: _owners(option)[0] in UPDATES):
        value, of = getattr(config, each.name), each.metadata["of"]
        told = f"{option_name(each)}={value} is an option of"
        if not of or value == each.default:
            continue
        owners = _owners(each)
        if owners[0] in MODELS and not {config.model, config.protocol} & set(owners):
            which = of.replace(" or encrypted-model", ", or of --protocol encrypted-model")
            raise ParameterError(f"{told} --model {which}: leave it out for {config.model}")
        is_ridge = each.name == "ridge" and config.is_regression
        if owners[0] in UPDATES and config.protocol not in owners and not is_ridge:
            raise ParameterError(f"{told} --protocol {of}{each.metadata['cure']}")
    offered = UPDATES[config.protocol]
    if config.update and config.update not in offered:
        others = [name for name, updates in UPDATES.items() if config.update in updates]
        cure = f"; it runs with --protocol {others[0]}" if others else ""
        raise ParameterError(
            f"update={config.update!r} is not one of {', '.join(offered)}, the updates of "
            f"protocol {config.protocol}{cure or suggest(config.update, offered)}"
        )


def check_rule(config: SimulationConfig) -> None:
    """Refuse what no certificate or rule takes, whatever the data."""
    check_options(config)
    if config.update == "clipped-gd" and config.clip is None:
        raise ParameterError("update='clipped-gd' needs a clip: add --clip C, such as 0.5")
    # There batches are an option of every update.
    at_home = {"batches"} if config.protocol == ENCRYPTED_MODEL else set[str]()
    for each in (field for field in fields(config) if field.name in OF_DUAL - at_home):
        value = getattr(config, each.name)
        if value != each.default and config.update != "scd":
            raise ParameterError(
                f"{each.name}={value} is an option of --update scd: leave it out for "
                f"{config.update or config.protocol}"
            )
    ring = config.ring_dim
    if ring is not None and (ring < 2 or ring & (ring - 1)):
        raise ParameterError(
            f"ring_dim={ring} is no power of two: take {1 << ring.bit_length()}, or leave it "
            "out for the smallest secure one"
        )


def check_outcome(config: SimulationConfig) -> None:
    """What is predicted: a label, or numeric targets."""
    unnamed = config.data is not None and config.schema is None
    if not config.is_regression:
        if config.targets:
            raise ParameterError(
                f"target={','.join(config.targets)} is numeric, which model {config.model} does "
                f"not predict: add --model {REGRESSIONS[0]}, or name a yes/no column by --label"
            )
        if unnamed and config.label is None:
            raise ParameterError(
                "label is missing: name the column to predict, such as --label y, or give a "
                "--schema, which names it"
            )
        return
    if unnamed and not config.targets:
        raise ParameterError(
            f"target is missing: model {config.model} predicts numeric columns, such as "
            "--target Y1,Y2; or give a --schema, which names them"
        )
    for name, times in Counter(config.targets).items():
        if times > 1 or not name:
            raise ParameterError(f"target={name!r} is empty or named twice: name each once")
    by = config.split.partition("by:")[2]
    if by and by in config.targets:
        raise ParameterError(f"split={config.split!r} names a target: choose another column")
    if config.split.startswith("dirichlet"):
        raise ParameterError(
            f"split={config.split!r} skews classes, which numeric targets have not: take even "
            "or by:COLUMN"
        )


def _owners(each: Field[Any]) -> list[str]:
    """Models or protocols that an option belongs to; one that is empty: all."""
    return str(each.metadata["of"]).split(" or ")
