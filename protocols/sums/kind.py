"""What is known of plans of secure sums."""

from protocols.plan.kinds import Kind
from protocols.sums import words
from protocols.sums.plan import GradientPlan

KIND = Kind(
    plan=GradientPlan,
    released=words.released,
    figures=words.figures,
    facts=words.facts,
    remarks=words.remarks,
)
