"""WHAT is computed: pure protocol code, no files, no sockets, no secret keys."""

import os

# Read when libgomp is first loaded. Threads that spin between operations stall a shared machine:
# the same run took ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
