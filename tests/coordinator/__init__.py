"""Tests of ``coordinator``."""
