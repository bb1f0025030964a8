"""How much noise encrypted weights from Gram sums have."""

from __future__ import annotations

import math

from protocols.ckks.circuits.errors import MARGIN, error_std, few_margin
from protocols.ckks.circuits.gram_blocks import BlockLayout
from protocols.ckks.flooding import rounding_std
from protocols.gram.block_training import error_before
from protocols.gram.contributions import LIFT, UNIT, GramTask

# Roundings of u relative to itself: 4 of noise (`precondition`), the rest for the primes' distance
# from the scale, which the tests measure with it.
SHARP = 36
SHARP_NOISE = 4
# Of |W|, for one output, which flooding is sized by. Rows that are near zero can bring longer ones,
# up to `slots.bounds`: a factor that is said in docs/method/security-argument.md, and tested.
ASSUMED_WEIGHT = 4.0


def model_error_std(task: GramTask) -> float:
    """Bound on the noise of the encrypted W / UNIT before its decryption, per coefficient.

    In roundings of one rescaling: the last mask adds one. LIFT M carries about two, the same in
    every iteration, which moves W by 2 / LIFT times `Pace.travel` |W|; a mask's coefficients are
    rounded too. The error of u, SHARP roundings relative to itself, changes the speed: W by k p'(k)
    of it, p the polynomial that is left over, at most about 1. Primes that differ from the scale
    multiply values by public constants; that is no noise. An `outer` W carries two and the bias of
    key switches, 1.6 (1 + log2 d') for each special prime, LIFT times as much in the next one, and
    `Pace.responses` of that in the last. The mask keeps a share of all. Of blocks: `error_before`.
    """
    return _with_mask(task, task.layout.kept, SHARP)


def shown_error_std(task: GramTask) -> float:
    """The same of what the mask keeps, without what is the same under all keys.

    Of few slots, which scatter about their average.
    """
    return _with_mask(task, 1.0, SHARP_NOISE, few_margin(task.num_features * task.outputs))


def _error_before(task: GramTask, sharp: float) -> float:
    """Before the mask, in roundings."""
    layout, pace = task.layout, task.pace
    inverse = sharp + (1 / (task.inverse.low * task.lift) if task.row_sums else 0.0)
    if isinstance(layout, BlockLayout):
        return error_before(task, ASSUMED_WEIGHT, sharp - SHARP_NOISE)
    mask = LIFT**2 / (math.sqrt(12) * rounding_std(task.ckks, len(task.names)))
    path = (2 / LIFT + mask / 2) * (1 + pace.travel)
    bias = LIFT * (2 + 1.6 * layout.side.bit_length()) * math.fsum(pace.responses) / 2
    return (1 + ASSUMED_WEIGHT) * (path + inverse) / UNIT + bias


def _with_mask(task: GramTask, kept: float, sharp: float, margin: float = MARGIN) -> float:
    rounding = math.sqrt(1 + kept * _error_before(task, sharp) ** 2)
    parties = len(task.names)
    return error_std(task.ckks, parties, rounding_gain=rounding, row_gain=0.0, margin=margin)
