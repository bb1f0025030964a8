"""Polynomials, certified ranges, whitening."""
