"""Flower's own example apps under secure sums: `python -m sims.studies.flower.apps`."""
