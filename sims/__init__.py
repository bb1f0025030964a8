"""Everyone in one process: simulation, data sets, baselines, reports, the command ``cohort``."""

from protocols.platform import guard

guard()
