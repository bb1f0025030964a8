"""How long to wait before asking again for what nobody announces.

After s seconds of silence the next question comes s / 20 later, at least SHORTEST_SECONDS and at
most LONGEST_SECONDS: what is waited for in vain is a twentieth of the silence, or unnoticeable.
"""

from __future__ import annotations

SHARE, SHORTEST_SECONDS, LONGEST_SECONDS = 1 / 20, 0.05, 0.5


def pause(silent: float, asking: float = 0.0) -> float:
    """Seconds until the next question.

    silent: since something came; asking: what the last question took, so that at most a third of
    the time goes into questions.
    """
    return max(2 * asking, min(max(SHARE * silent, SHORTEST_SECONDS), LONGEST_SECONDS))
