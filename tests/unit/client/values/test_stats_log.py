"""Lines of `stats_interval_in_seconds`."""

from __future__ import annotations

import logging
import threading

import pytest

from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.client.values.stats_log import StatsLine, StatsLog


def test_a_line_tells_what_happened_since_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sent = [0]
    log = StatsLog(
        10, lambda: [StatsLine("producer=p", {"sent": sent[0], "failed": 0}, {"pending": 0})], Scheduler("test")
    )
    log.log_once()
    assert caplog.messages == []
    sent[0] = 50
    log.log_once()
    log.log_once()
    sent[0] = 70
    log.log_once()
    assert caplog.messages == [
        "producer=p in 10 s: sent=50 (5.0/s) pending=0 total_sent=50 total_failed=0",
        "producer=p in 10 s: sent=20 (2.0/s) pending=0 total_sent=70 total_failed=0",
    ]


def test_it_logs_by_itself_and_ends() -> None:
    asked = threading.Event()

    def lines() -> list[StatsLine]:
        asked.set()
        return []

    scheduler = Scheduler("test")
    log = StatsLog(1, lines, scheduler)
    log.start()
    log.start()
    assert asked.wait(60)
    scheduler.close()


def test_no_interval_is_no_thread() -> None:
    before = threading.active_count()
    StatsLog(0, list, Scheduler("test")).start()
    assert threading.active_count() == before
