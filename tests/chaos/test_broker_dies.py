"""The broker goes away and comes back while producers and consumers are at work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from layer.embedded import EmbeddedBroker
from tests.chaos.processes import ROOT, eventually
from tests.chaos.stage import Stage

pytestmark = pytest.mark.kafka

MakeStage = Callable[..., Stage]


def restart(broker: EmbeddedBroker) -> None:
    broker.restart()


def kill(broker: EmbeddedBroker) -> None:
    broker.kill()
    broker.start()


def test_everybody_continues_when_the_broker_comes_back(shaky_stage: MakeStage, own_broker: EmbeddedBroker) -> None:
    on = shaky_stage(4)
    publishers = [on.publish(pace_ms=1, name=name) for name in ("p", "q")]
    shared = on.subscription("Shared", "shared")
    failover = on.subscription("Failover", "failover")
    workers = [*shared.join_many(2, flush_every=37), *failover.join_many(2, flush_every=37)]
    eventually("they are at work", lambda: len(shared.received()) > 500 and len(failover.received()) > 500)
    for outage in (restart, kill):
        outage(own_broker)
        before = len(shared.received()), len(failover.received())
        eventually(
            "both subscriptions go on",
            lambda: len(shared.received()) > before[0] + 500 and len(failover.received()) > before[1] + 500,  # noqa: B023
        )
    for publisher in publishers:
        publisher.stop()
    assert all(worker.alive for worker in workers)
    shared.until_worked_off()
    failover.until_worked_off()
    on.check_publishing(on.sent())
    assert not shared.verdict().broken
    assert not failover.verdict().broken


def test_a_consumer_dies_while_the_broker_is_away(shaky_stage: MakeStage, own_broker: EmbeddedBroker) -> None:
    """Its group is rebalanced by a coordinator that has only just read the group from its log."""
    on = shaky_stage(2)
    publisher = on.publish(pace_ms=1)
    shared = on.subscription("Shared")
    doomed, other = shared.join_many(2, flush_every=23, persist_ms=5, shuffle=100)
    eventually("both are at work", lambda: min(doomed.received(), other.received()) > 500)
    own_broker.kill()
    doomed.kill()
    own_broker.start()
    third = shared.join(flush_every=23, persist_ms=5, shuffle=100)
    publisher.stop()
    shared.until_worked_off()
    on.check_publishing(on.sent())
    assert third.received() + other.received() > 0
    assert not shared.verdict().broken


def test_questions_about_groups_outlive_a_broker(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """librdkafka's own requests abort the process here (see `layer.kafka.group_requests`)."""
    answers = tmp_path / "answers"
    with answers.open("wb") as said:
        asker = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.group_asker", own_broker.bootstrap],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=said,
        )

    def answered() -> int:
        assert asker.poll() is None, f"the asking process ended with {asker.returncode}"
        return answers.read_text().split().count("yes")

    eventually("it gets answers", answered)
    own_broker.kill()
    own_broker.start()
    before = answered()
    eventually("it gets answers again", lambda: answered() > before + 20)
    asker.communicate(timeout=60)
    assert asker.returncode == 0
