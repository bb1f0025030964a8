"""LFFR models: what a party computes for them, of encrypted rows and of an encrypted model."""
