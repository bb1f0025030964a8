"""A run folder, checked again from its files alone."""
