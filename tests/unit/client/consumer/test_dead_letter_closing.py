"""The end of a consumer with dead letters that cannot be published."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery
from pulsar_on_kafka.client.consumer import dead_letters as dead_letters
from pulsar_on_kafka.client.consumer.dead_letters import DeadLetterWriter, LetterProducers
from pulsar_on_kafka.client.values.dead_letter_policy import DeadLetterPolicyBuilder


class NothingGets(DeadLetterWriter):
    """Each letter takes until the test is over."""

    def __init__(self, over: threading.Event) -> None:
        anything: Any = None
        policy = DeadLetterPolicyBuilder().maxRedeliverCount(1).build()
        super().__init__(policy, "s", LetterProducers(anything, "s"))
        self.over = over
        self.begun = threading.Event()

    def _publish(self, letter: Delivery, kept: dead_letters.Kept) -> None:
        self.begun.set()
        self.over.wait(60)


def test_closing_waits_for_so_long_and_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_CLOSE_S", 0.1)
    over, all_kept = threading.Event(), threading.Event()
    kept: list[Delivery] = []
    letters: list[Any] = [object() for _ in range(5)]

    def keep(letter: Delivery) -> None:
        kept.append(letter)
        if len(kept) == 4:
            all_kept.set()

    writer = NothingGets(over)
    writer.publish_dead_letters(letters, keep)
    assert writer.begun.wait(60)
    writer.close()
    assert not kept
    over.set()
    assert all_kept.wait(60)
    assert kept == letters[1:]
    writer.publish_dead_letters(letters[:1], keep)
    assert kept == [*letters[1:], letters[0]]
