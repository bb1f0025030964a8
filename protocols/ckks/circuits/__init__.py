"""Circuits on ciphertexts, and how rows are packed."""
