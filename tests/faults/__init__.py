"""Faults of every role at every step, across processes: `python -m tests.faults`."""
