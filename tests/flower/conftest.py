"""What several files of attacks start from."""

from __future__ import annotations

import pytest

from tests.flower.federation import Federation, one_round


@pytest.fixture
def finished() -> Federation:
    """After one round."""
    federation = Federation(10)
    one_round(federation)
    return federation
