"""Regressions of several owners, in scikit-learn's manner."""
