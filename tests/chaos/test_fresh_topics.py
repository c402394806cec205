"""Messages are sent to a topic the moment it exists: its partitions may have no leader yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.stage import Stage

pytestmark = pytest.mark.kafka


def test_nothing_confirmed_is_lost_on_a_fresh_topic(new_stage: Callable[..., Stage]) -> None:
    """A producer that has not met the cluster before, each time: it has sent nothing to any partition."""
    for _ in range(12):
        with new_stage(4) as on:
            publisher = on.publish(300, pace_ms=0.1)
            publisher.wait()
            on.check_publishing(on.sent())
