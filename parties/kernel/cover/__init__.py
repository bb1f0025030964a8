"""Shares of others' keys, for owners who vanish."""
