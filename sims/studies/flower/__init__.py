"""Secure sums in Flower, measured: `python -m sims.studies.flower`."""
