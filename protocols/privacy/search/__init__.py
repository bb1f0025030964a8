"""The best certified setting."""
