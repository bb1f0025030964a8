"""Handwritten digits, private per record."""
