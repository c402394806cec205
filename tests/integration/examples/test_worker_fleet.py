"""The example of a fleet that people copy, with few workers and few orders."""

from __future__ import annotations

import re

import pytest

from tests.programs import run_example


@pytest.mark.kafka
@pytest.mark.long
def test_processes_share_one_partition_bury_what_is_hopeless_and_close(service_url: str) -> None:
    said = run_example("worker_fleet.py", "--url", service_url, "--workers", "3", "--orders", "150", timeout_s=170)
    assert "orders with a bill: 147 of 147" in said
    assert "orders among the dead letters: 3 of 3" in said
    assert said.count(": leaves in good order") == 3
    assert "workers that closed in good order: 3 of 3" in said
    assert said.count("PrinterBusy: ") >= 1
    assert len(re.findall(r"^worker-[123]: [1-9][0-9]* bills$", said, re.MULTILINE)) >= 2, said
