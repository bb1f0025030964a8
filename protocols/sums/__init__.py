"""Secure sums, round by round."""
