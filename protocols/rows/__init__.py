"""Encrypted rows: plan, slots, training."""
