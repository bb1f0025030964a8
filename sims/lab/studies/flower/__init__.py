"""Secure sums in Flower, measured: `python -m sims.lab.studies.flower`."""
