"""Sums over rows in integers."""
