"""Secure sums for Flower apps: the server gets means, under keys that nobody holds.

    # client                                              # server
    from ciphercohort.flower import secure_sum_mod        from ciphercohort.flower import SecureSum
    app = ClientApp(mods=[secure_sum_mod])                strategy = SecureSum(FedAvg())

Nothing here imports OpenFHE; the package that it ships in needs it. See docs/flower.md.
"""

from ciphercohort.flower.lots import lot
from ciphercohort.flower.mod import SecureSumMod, secure_sum_mod
from ciphercohort.flower.plan import Privacy
from ciphercohort.flower.server import SecureGrid, SecureSum
from ciphercohort.flower.workflow import SecureSumWorkflow

__all__ = [
    "Privacy",
    "SecureGrid",
    "SecureSum",
    "SecureSumMod",
    "SecureSumWorkflow",
    "lot",
    "secure_sum_mod",
]
