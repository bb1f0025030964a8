"""Sums over rows: what one row adds is the same whatever its company."""
