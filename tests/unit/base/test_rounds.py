"""A thread that works in rounds."""

from __future__ import annotations

import logging
import threading

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, StoreError
from pulsar_on_kafka.base.rounds import RoundsThread

PATIENCE_S = 20.0


def test_rounds_go_on_after_what_fails_until_the_end(caplog: pytest.LogCaptureFixture) -> None:
    trouble: list[Exception] = [StoreError("no broker"), ValueError("a mistake"), Closed("over")]
    fine = threading.Event()

    def work() -> float:
        if trouble:
            raise trouble.pop(0)
        fine.set()
        return 3600.0

    rounds = RoundsThread("pok-test-rounds", work, "work undone", first_s=0.0, again_s=0.001, again_most_s=0.004)
    with caplog.at_level(logging.WARNING, logger="pulsar_on_kafka.base.rounds"):
        rounds.start()
        assert fine.wait(PATIENCE_S)
    assert rounds.is_alive()
    assert rounds.name == "pok-test-rounds"
    assert not rounds.ended
    assert [record.getMessage() for record in caplog.records] == [
        "work undone, again in 0 s: no broker",
        "work undone, again in 0 s",
    ]
    fine.clear()
    rounds.wake()  # the next one would begin in an hour
    assert fine.wait(PATIENCE_S)
    rounds.close(Deadline.after(PATIENCE_S))
    rounds.close(Deadline.after(PATIENCE_S))
    assert rounds.ended
    assert not rounds.is_alive()


def test_a_round_that_lasts_sees_that_it_is_to_end() -> None:
    begun = threading.Event()

    def work() -> float:
        begun.set()
        while not rounds.ended:
            threading.Event().wait(0.001)
        return 0.0

    rounds = RoundsThread("pok-test-rounds", work, "work undone", first_s=0.0, again_s=1.0)
    rounds.start()
    assert begun.wait(PATIENCE_S)
    rounds.close(Deadline.after(PATIENCE_S))
    assert not rounds.is_alive()
