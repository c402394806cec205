"""The example that people copy, on a small sample."""

from __future__ import annotations

import pytest

from tests.programs import run_example


@pytest.mark.kafka
@pytest.mark.kills
def test_every_flight_is_written_once_in_spite_of_a_kill(bootstrap: str) -> None:
    pytest.importorskip("pandas")
    said = run_example("exactly_once.py", "--flights", "2000", timeout_s=280, bootstrap=bootstrap)
    assert "ended with status -9" in said
    assert "Exactly once." in said
