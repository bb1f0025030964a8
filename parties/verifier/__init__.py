"""What drives an owner's kernel: plans, circuits, certificates, messages; no row, key or noise."""

from protocols.platform import guard

guard()
