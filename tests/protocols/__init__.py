"""Tests of ``protocols``."""
