"""What cover for parties that vanish means, in words: for plans, certificates and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocols.plan.run_plan import RunPlan
    from protocols.privacy.certificates.certificate import Certificate


def cover_lines(body: dict[str, Any]) -> list[str]:
    """Who can stand in for whom, and what that costs in confidentiality."""
    cover, parties = body["cover"], body["parties"]
    if cover is None:
        return []
    return [
        f"cover: up to {parties - cover} parties may vanish once all have contributed; any {cover} "
        f"that collude have every key (without cover: all {parties})"
    ]


def with_cover(certificate: Certificate | None, plan: RunPlan) -> dict[str, Any] | None:
    """A certificate takes for granted that nobody has the keys: with cover, t parties have."""
    if certificate is None or plan.cover is None:
        return certificate.to_dict() if certificate else None
    words = (
        f"fewer than {plan.cover} parties collude: any {plan.cover} of them could stand in for "
        "all others, and so decrypt"
    )
    return {**certificate.to_dict(), "assumptions": [*certificate.assumptions, words]}


def missing_words(missing: tuple[str, ...]) -> tuple[str, ...]:
    """A warning, where somebody vanished."""
    if not missing:
        return ()
    return (f"others stood in for {', '.join(missing)}, who vanished after contributing",)
