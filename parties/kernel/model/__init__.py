"""A run of an encrypted model."""
