"""Flower's releases: the adapters under the installed one, and 1.41 on CPython 3.12."""
