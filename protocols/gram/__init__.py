"""Regression on encrypted sums of products."""
