"""Proofs of an epsilon, by kind of run."""
