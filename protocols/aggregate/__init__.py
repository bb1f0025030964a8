"""Sums of private vectors: one small ciphertext per party and round, only the sum opens."""
