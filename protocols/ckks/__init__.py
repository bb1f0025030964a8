"""OpenFHE's public half: context, packing, polynomial, circuit, ciphertext."""

import os

from protocols.platform import check_platform, import_failure

check_platform()
# Threads that spin between operations stall a shared machine: the same run took 50 times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
try:
    import openfhe  # noqa: F401  # fails here, once, with a cause and a cure
except ImportError as error:
    raise import_failure(error) from error
