"""Losses and their polynomial gradients."""
