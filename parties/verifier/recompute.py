"""What a run costs this party's data, recomputed from the plan and checked before any key is made.

A plan states epsilon, sigma and a sensitivity. A party believes none of them. From the update rule,
the polynomials, the rows of all parties and its **own** schema's norm bound it builds the
certificate again (`certificates.mechanism`), so the iterate bound and the sensitivity are its
own, and asks the exact accountant what the plan's sigma gives.

Security: a plan whose epsilon is below the recomputed one, whose delta is overspent, whose iterates
are not bounded, or whose noise is split as if nobody colluded, is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.errors import ParameterError, PolicyError, PrivacyError
from protocols.plan.run_plan import RunPlan

if TYPE_CHECKING:
    from protocols.privacy.certificates.mechanism import Mechanism


def recompute(plan: RunPlan, norm_bound: float) -> Mechanism:
    """What a plan with privacy costs, for rows of norm at most `norm_bound`.

    Raises:
        PolicyError: the plan's promise does not follow from its noise; the message names every
            field with both values, and the cure.
    """
    from protocols.privacy.certificates.mechanism import Mechanism  # every certificate

    if plan.privacy is None:
        raise PolicyError("the plan has no privacy noise: there is nothing to account for")
    try:
        return Mechanism.from_plan(plan, norm_bound).require()
    except ParameterError as error:
        raise PolicyError(f"the plan's privacy cannot be accounted for: {error}") from None
    except PrivacyError as error:
        raise PolicyError(str(error)) from None
    except (ArithmeticError, ValueError) as error:
        raise PolicyError(f"the plan's privacy cannot be computed: {error}") from None
