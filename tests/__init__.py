"""Tests: one folder per package, the project-wide rules at the top."""
