"""Sums of products of rows, encrypted once: linear models in closed form."""
