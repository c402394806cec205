"""The example that people copy, on a small sample."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "exactly_once.py"


@pytest.mark.kafka
def test_every_flight_is_written_once_in_spite_of_a_kill(bootstrap: str) -> None:
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--flights", "2000"],
        env={**os.environ, "POK_BOOTSTRAP": bootstrap},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ended with status -9" in done.stdout
    assert "Exactly once." in done.stdout
