"""What an encrypted iteration costs on this machine, beside what it could cost otherwise.

Run with `python -m benchmarks` (or `make bench`); `docs/benchmarks.md` explains the columns.
"""
