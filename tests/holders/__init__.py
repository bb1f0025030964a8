"""Where rows, secrets and noise go: `python -m tests.holders`."""
