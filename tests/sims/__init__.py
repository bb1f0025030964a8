"""Tests of ``sims``."""
