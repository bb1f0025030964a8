"""Secure sums in Flower apps: what they give, what an attack gets, what is refused."""
