"""Whole runs seen from outside: is the ledger true, and does anything follow from it?

`python -m tests.provenance` prints the table of all protocols and options.
"""
