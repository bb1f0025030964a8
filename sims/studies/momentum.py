r"""Rate against noise: what step and momentum cost a private method.

Question: how much noise does a faster rate let through, for the heavy ball and Nesterov's method?

    python -m sims.studies.momentum --out DIR [--mu 0.02] [--smoothness 5.12]

For every step alpha = c / L and momentum beta: iterations per decade of suboptimality,
ln 10 / (-2 ln rho), against the suboptimality that unit noise settles at per coordinate, both in
the worst case over quadratics with curvatures in [mu, L] (`protocols.privacy.dynamics`). Points
further left are faster, lower ones quieter; a line is one step, from beta = 0 to the fastest beta
(filled) and on. Writes momentum.csv, momentum.svg and momentum.png.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from protocols.privacy.dynamics import METHODS, Curvature, Method, amplification, rate
from sims.console import refusals, say, stdout

STEP_SCALES = (0.1, 0.3, 1.0, 2.0)
_BETAS = tuple(float(b) for b in 1 - np.geomspace(1.0, 0.005, 150))
_COLOURS = ("#0072B2", "#009E73", "#D55E00", "#000000")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One choice: step_scale c, momentum beta, rate rho < 1, amplification."""

    method: Method
    step_scale: float
    beta: float
    rate: float
    amplification: float

    @property
    def decade(self) -> float:
        """Iterations that divide the suboptimality by 10, without noise."""
        return math.log(10) / (-2 * math.log(self.rate))


def trade(method: Method, step_scale: float, bounds: Curvature) -> list[Point]:
    """Points of one step for beta from 0 to 0.995; those that do not converge are left out."""
    alpha = step_scale / bounds.smoothness
    points = [
        Point(
            method=method,
            step_scale=step_scale,
            beta=beta,
            rate=rate(method, alpha=alpha, beta=beta, bounds=bounds),
            amplification=amplification(method, alpha=alpha, beta=beta, bounds=bounds),
        )
        for beta in _BETAS
    ]
    return [point for point in points if 0 < point.rate < 1 - 1e-9]


def fastest(points: Sequence[Point]) -> Point:
    """The smallest rate."""
    return min(points, key=lambda point: point.rate)


def _write_csv(path: Path, points: Sequence[Point]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("method", "c", "beta", "rate", "iterations_per_decade", "amplification"))
        for p in points:
            numbers = (p.beta, p.rate, p.decade, p.amplification)
            writer.writerow((p.method, p.step_scale, *(f"{x:.6g}" for x in numbers)))


def _draw(out: Path, points: Sequence[Point], bounds: Curvature) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from sims.plots import STYLE

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.9), layout="constrained")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, method in zip(panels, METHODS, strict=True):
            for c, colour in zip(STEP_SCALES, _COLOURS, strict=True):
                mine = [p for p in points if (p.method, p.step_scale) == (method, c)]
                if not mine:
                    continue
                x, y = [p.decade for p in mine], [p.amplification for p in mine]
                axes.loglog(x, y, color=colour, label=f"c = {c:g}")
                best = fastest(mine)
                axes.plot(best.decade, best.amplification, "o", color=colour)
            axes.set_title("heavy ball" if method == "hb" else "Nesterov", fontsize=11)
            axes.set_xlabel("iterations per decade")
        panels[0].set_ylabel("suboptimality per unit noise")
        panels[0].legend()
        figure.suptitle(f"kappa = {bounds.condition:.0f}; dots: fastest momentum")
        figure.savefig(out / "momentum.svg", metadata={"Date": None})
        figure.savefig(out / "momentum.png", dpi=150)


def main(
    out: Annotated[Path, typer.Option(help="Folder for the figure and its numbers.")],
    mu: Annotated[float, typer.Option(help="Strong convexity, > 0.")] = 0.02,
    smoothness: Annotated[float, typer.Option(help="Largest curvature L.")] = 5.12,
) -> None:
    """Draw rate against noise over step and momentum."""
    with refusals():
        bounds = Curvature(mu=mu, smoothness=smoothness)
        curves = [trade(m, c, bounds) for m in METHODS for c in STEP_SCALES]
        points = [point for curve in curves for point in curve]
        out.mkdir(parents=True, exist_ok=True)
        _write_csv(out / "momentum.csv", points)
        _draw(out, points, bounds)
        for best in (fastest(curve) for curve in curves if curve):
            say(
                stdout(),
                f"{best.method:<4} c={best.step_scale:<4g} fastest beta={best.beta:.3f}: "
                f"{best.decade:.1f} iterations per decade, amplification {best.amplification:.3g}",
            )


if __name__ == "__main__":
    typer.run(main)
