"""Tests of ``parties``."""
