"""Everyone in one process: simulation, its plaintext twins, data sets; the laboratory."""

from protocols.platform import guard

guard()
