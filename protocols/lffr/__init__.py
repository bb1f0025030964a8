"""LFFR, a sigmoid of targets by least squares: on encrypted rows, and where rows stay home."""
