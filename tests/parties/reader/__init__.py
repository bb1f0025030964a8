"""Tests of a party's tables."""
