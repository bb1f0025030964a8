"""Noise shares, sensitivity, accounting, the certificate."""
