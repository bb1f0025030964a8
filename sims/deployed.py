"""What a deployment shares with `cohort simulate`: how a plan is chosen, how a model is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from coordinator.deployment import OUTCOME, SESSION
from coordinator.replay import evidence as read_evidence
from coordinator.settings import SCHEMA, Settings
from parties.data.schema import Schema
from protocols.errors import ParameterError
from protocols.gradients import GradientPlan
from protocols.objectives import MomentObjective
from protocols.plan import Member, RunPlan
from protocols.plans import plan_from_dict
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.rescale import Scaling
from protocols.published import published
from protocols.serialise import from_plain
from protocols.transcript import verify
from sims.config import SimulationConfig
from sims.documents import model_document, to_json
from sims.figures import calibrated, figures_of, settled
from sims.run_folder import MODEL, PLAN, write_text

UNKNOWN = "00" * 32
MESSAGE_BYTES = 100_000_000


def plan_template(settings: Settings, before: str | None = None) -> tuple[RunPlan, Wanted]:
    """The plan of the next run, but for session and commitments, and what was asked for.

    before: the finished session whose second moment it whitens rows by; without it, where rows are
    to be whitened, the next run is the one that sums it.

    Raises:
        CohortError: too few parties, or no certified setting for their rows.
    """
    cards, schema = settings.cards(), Schema.load(settings.folder / SCHEMA)
    for card in cards.values():
        if card.schema != schema.digest():
            raise ParameterError(f"party {card.name!r} uses another schema than {SCHEMA}")
    try:
        config = SimulationConfig(parties=len(cards), **settings.training)
    except TypeError as error:
        raise ParameterError(f"[training] of coordinator.toml: {error}") from None
    rows = [card.rows for card in cards.values()]
    if before is None:
        found = calibrated(config, schema, rows)
    else:
        wanted = from_plain(Wanted, _session(settings, before)["wanted"])
        shown = read_evidence(settings.session_folder(before))
        found = settled(figures_of(schema, rows), wanted, shown)
    members = tuple(
        Member(name=card.name, rows=card.rows, verify_key=card.identity, commitment=UNKNOWN)
        for card in cards.values()
    )
    plan = found.first_plan if found.first is not None else found.plan
    return plan("template", members).fit_messages(MESSAGE_BYTES), found.wanted


def following(settings: Settings, session: str) -> str | None:
    """The session that whitens rows by the second moment of this one, if there is one already."""
    for path in settings.session_folder(session).parent.glob(f"*/{SESSION}"):
        if json.loads(path.read_text(encoding="utf-8")).get("before") == session:
            return path.parent.name
    return None


def _session(settings: Settings, session: str) -> dict[str, Any]:
    text = (settings.session_folder(session) / SESSION).read_text(encoding="utf-8")
    fields: dict[str, Any] = json.loads(text)
    return fields


def is_first(settings: Settings, session: str) -> bool:
    """Whether a session sums a second moment, for one that comes after it."""
    plan = plan_from_dict(_session(settings, session)["plan"])
    return isinstance(plan, GradientPlan) and isinstance(plan.task, MomentObjective)


@dataclass(frozen=True, kw_only=True)
class DeployedModel:
    """What `documents.model_document` needs of a run whose data nobody has."""

    plan: RunPlan
    schema: Schema
    weights: NDArray[np.float64]
    released: NDArray[np.float64]
    scaling: Scaling | None
    transcript_head: str
    noise: str

    @property
    def insecure(self) -> bool:
        """Whether a toy ring was used."""
        return self.plan.security_bits < 128

    def summary(self) -> dict[str, Any]:
        """The part of `RunResult.summary` that a model quotes."""
        privacy = self.plan.privacy
        names = ("epsilon", "delta", "colluders", "sigma")
        return {"privacy": {n: getattr(privacy, n) for n in names} if privacy else None}


def write_model(settings: Settings, session: str) -> Path:
    """model.json of a finished session, in the data's own units.

    Raises:
        ProtocolError: the transcript is broken.
    """
    folder = settings.session_folder(session)
    outcome: Mapping[str, Any] = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    plan = plan_from_dict(outcome["plan"])
    schema, released = Schema.load(settings.folder / SCHEMA), np.array(outcome["weights"])
    weights, scaling = published(plan, released, schema.bias)
    model = DeployedModel(
        plan=plan,
        schema=schema,
        weights=weights,
        released=released,
        scaling=scaling,
        transcript_head=verify(_lines(folder / "transcript.jsonl")),
        noise="system" if plan.privacy else "none",
    )
    write_text(folder / PLAN, to_json({**outcome["plan"], "digest": outcome["digest"]}))
    write_text(folder / MODEL, to_json(model_document(cast(Any, model))))
    return folder / MODEL


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)
