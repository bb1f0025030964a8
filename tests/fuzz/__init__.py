"""Hostile bytes against every role: `python -m tests.fuzz --inputs 1000000 --seed 1`."""
