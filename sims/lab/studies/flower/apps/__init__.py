"""Flower's own example apps under secure sums: `python -m sims.lab.studies.flower.apps`."""
