"""The first steps of the README, and the holes that they leave."""

from __future__ import annotations

import pytest

from tests.integration.command_line import CommandLine
from tests.programs import run_example
from tests.steps import Unique


@pytest.mark.kafka
def test_the_refused_order_comes_again_and_the_others_stay_as_holes(service_url: str, unique: Unique) -> None:
    topic = unique("orders")
    said = run_example("first_steps.py", service_url, topic, timeout_s=60)
    assert said == "55 orders are billed, 1 of them when it came again, 5 are left\n"
    shown = CommandLine(service_url, "subscriptions")("show", topic, "-s", "billing").stdout
    assert shown.startswith("partition 0: backlog 5, mark-delete 6, 48 acknowledged above it, 3 holes\n")
