"""Descriptions, life tables and Cox models of rows of several parties, from secure sums."""
