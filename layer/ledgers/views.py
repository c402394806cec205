"""The lists of ledgers as this process last read them, for everybody in it who only looks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.ledgers.ledger_machine import LedgerLists
from pulsar_on_kafka.mapping.state.state_topics import LEDGERS, StateTopic
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.view import LogView

T = TypeVar("T")


class StateTopics(Protocol):
    """The call of `Services` that views use."""

    def has_state_topic(self, topic: StateTopic, deadline: Deadline) -> bool: ...


class LedgerViews:
    """Thread-safe. Memory: `LedgerLists` of those partitions of `ledgers` that were asked for."""

    def __init__(self, log: StateLog, topics: StateTopics, clock: Clock) -> None:
        self._log = log
        self._topics = topics
        self._clock = clock
        self._there = False
        self._views: dict[int, LogView[LedgerLists]] = {}
        self._lock = threading.Lock()

    def ask(self, topic: str, question: Callable[[LedgerLists], T], deadline: Deadline) -> T:
        """Put `question` to the lists among which those of `topic` (full name, without a partition's suffix) are, at an
        end that was asked for after this call was made. Without the state topic, because nobody ever kept lists, they
        are empty. Raises as `LogView.ask`."""
        number = LEDGERS.partition_for(topic)
        if not self._there and not self._topics.has_state_topic(LEDGERS, deadline):
            return question(LedgerLists(number))
        self._there = True
        with self._lock:
            view = self._views.get(number)
            if view is None:
                view = LogView(self._log, LEDGERS, number, partial(LedgerLists, number), self._clock)
                self._views[number] = view
        return view.ask(question, deadline, about=topic)
