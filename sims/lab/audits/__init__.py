"""Attacks on whole runs: epsilon from below."""
