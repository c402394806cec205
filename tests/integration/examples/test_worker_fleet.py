"""The example of a fleet that people copy, with few workers and few orders."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "worker_fleet.py"


@pytest.mark.kafka
def test_processes_share_one_partition_bury_what_is_hopeless_and_close(service_url: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--url", service_url, "--workers", "3", "--orders", "150"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "orders with a bill: 147 of 147" in done.stdout
    assert "orders among the dead letters: 3 of 3" in done.stdout
    assert done.stdout.count(": closed in good order") == 3
    assert done.stdout.count("PrinterBusy: ") >= 1
    assert len(re.findall(r"^worker-[123]: [1-9][0-9]* bills$", done.stdout, re.MULTILINE)) >= 2, done.stdout
