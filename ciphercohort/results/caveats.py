"""What keeps a run from its promise, as its outputs say it."""

from __future__ import annotations

from ciphercohort.job.inputs import SchemaFrom, unmet
from protocols.plan.run_plan import RunPlan


class Caveats:
    """Of anything that has a plan and words on schema and noise."""

    plan: RunPlan
    schema_from: SchemaFrom
    noise: str

    @property
    def unmet(self) -> tuple[str, ...]:
        """What keeps the privacy promise from holding, in words."""
        return unmet(self.schema_from, private=self.plan.privacy is not None)

    @property
    def insecure(self) -> bool:
        """Whether a toy ring was used."""
        return self.plan.security_bits < 128

    @property
    def seeded(self) -> bool:
        """Whether the noise can be subtracted by whoever knows the seed."""
        return "NOT PRIVATE" in self.noise
