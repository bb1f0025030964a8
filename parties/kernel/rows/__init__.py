"""A run on encrypted rows, or on encrypted sums of their products."""
