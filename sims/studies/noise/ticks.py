"""Axes of the plots: round numbers at the ticks, and no zoom into mere scatter."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

# Smallest ratio of a logarithmic axis' ends, and smallest span of a linear one in %.
_RATIO, _PERCENT = 1.25, 1.0


def number(value: float, _: int | None = None) -> str:
    """Three digits."""
    return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}"


def in_bytes(value: float, _: int | None = None) -> str:
    """With a decimal prefix."""
    step = min(int(np.log10(max(value, 1.0)) // 3), 4)
    return f"{value / 1000**step:.4g} {('B', 'kB', 'MB', 'GB', 'TB')[step]}"


def power(value: float, _: int | None = None) -> str:
    """Of two."""
    return f"$2^{{{np.log2(value):.0f}}}$"


def logarithmic(axes: mpl.axes.Axes, values: Sequence[float], unit: str) -> None:
    """Ordinate: powers of two for integer units and for very small or large values, else 1, 2, 5.

    values: all that is drawn, positive.
    """
    low, high = min(values), max(values)
    powers = high / low >= 4 and ("integer units" in unit or low < 1e-4)
    axes.set_yscale("log", base=2 if powers else 10)
    if high / low < _RATIO:
        middle = (low * high) ** 0.5
        axes.set_ylim(middle / _RATIO**0.5, middle * _RATIO**0.5)
    if powers:
        axes.yaxis.set_major_locator(LogLocator(base=2, numticks=9))
    elif high / low >= 4:
        steps = (1.0, 2.0, 3.0, 5.0) if high / low < 20 else (1.0, 2.0, 5.0)
        few = steps[: len(steps) if high / low < 1e4 else 1]
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=few, numticks=12))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_minor_locator(NullLocator())
    plain = in_bytes if unit == "B" else number
    axes.yaxis.set_major_formatter(FuncFormatter(power if powers else plain))


def linear(axes: mpl.axes.Axes, unit: str) -> None:
    """Ordinate: shares span at least a percentage point."""
    low, high = axes.get_ylim()
    if unit == "%" and high - low < _PERCENT:
        middle = (low + high) / 2
        axes.set_ylim(middle - _PERCENT / 2, middle + _PERCENT / 2)
    if unit == "B":
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(FuncFormatter(in_bytes))


def abscissas(axes: mpl.axes.Axes, at: Sequence[float]) -> None:
    """A tick at every abscissa, as long as they keep apart."""
    if not 1 <= len(at) <= 9:
        return
    axes.xaxis.set_major_locator(FixedLocator(at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(number))
