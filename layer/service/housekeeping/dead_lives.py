"""Removes what `producers` says of lives of topics that are over: where exclusive epochs began, highest sequence ids.

Nobody reads it: every such record names the life that it speaks of, and no life comes back.
"""

from __future__ import annotations

import logging
from typing import Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.producer_records import decode_bounds, decode_fence, decode_snapshot
from pulsar_on_kafka.mapping.state.state_keys import ProducerBoundsKey, ProducerKey, ProducerSequenceKey, decode_key
from pulsar_on_kafka.mapping.state.state_topics import PRODUCERS
from pulsar_on_kafka.service.housekeeping.cursors import Topics
from pulsar_on_kafka.service.housekeeping.rounds import DAY_MS, MOST_TOMBSTONES
from pulsar_on_kafka.statelog.api import LogRecord, StateLog, tombstone
from pulsar_on_kafka.statelog.views import read_once

_log: Final = logging.getLogger(__name__)
_MOST_FOUND: Final = 50_000
_TOPIC_S: Final = 10.0


class _OfLives:
    """Fold of one partition of `producers`: keys with the incarnation that their record names, by topic; of records
    that were written before `before_ms`. Bounded: at most 50,000, the others after those are gone."""

    def __init__(self, before_ms: int) -> None:
        self._before_ms = before_ms
        self._room = _MOST_FOUND
        self.found: dict[str, dict[bytes, int]] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        if not isinstance(key, ProducerKey | ProducerBoundsKey | ProducerSequenceKey):
            return
        keys = self.found.get(key.topic, {})
        if keys.pop(record.key, None) is not None:
            self._room += 1
        if record.value is not None and record.timestamp_ms < self._before_ms and self._room > 0:
            self.found.setdefault(key.topic, {})[record.key] = _incarnation(key, record.value)
            self._room -= 1


class DeadLives:
    """For one thread. Memory: during a call, what `_OfLives` says."""

    name = "dead lives"

    def __init__(self, log: StateLog, clock: Clock, topics: Topics, *, kept_ms: int = DAY_MS) -> None:
        self._log = log
        self._clock = clock
        self._topics = topics
        self._kept_ms = kept_ms

    def run(self, partition: int, deadline: Deadline) -> int:
        """Remove records of lives that are over. At most 20,000 tombstones."""
        before_ms = self._clock.now_ms() - self._kept_ms
        lives, unreadable = read_once(
            self._log, PRODUCERS, partition, lambda: _OfLives(before_ms), self._clock, deadline
        )
        keys: list[bytes] = []
        for topic, of_topic in sorted(each for each in lives.found.items() if each[0] not in unreadable):
            if len(keys) >= MOST_TOMBSTONES or deadline.passed():
                break
            within = Deadline.after(min(_TOPIC_S, deadline.remaining_s()))
            try:
                life = self._topics.last_life(TopicName.parse(topic), within)
            except LayerError as failure:
                _log.warning("topic=%s whether it lives cannot be asked now: %s", topic, failure)
                continue
            if life is not None:
                first_living = life.incarnation + (life.topic is None)
                keys += [key for key, incarnation in of_topic.items() if incarnation < first_living]
        if tombstone(self._log, PRODUCERS, partition, keys, deadline):
            _log.info("producers=%d removed %d records of topics' lives that are over", partition, len(keys))
        return len(keys)


def _incarnation(key: ProducerKey | ProducerBoundsKey | ProducerSequenceKey, value: bytes) -> int:
    """Raises CorruptRecord."""
    match key:
        case ProducerKey():
            return decode_fence(value).topic_incarnation
        case ProducerBoundsKey():
            return decode_bounds(value).topic_incarnation
        case ProducerSequenceKey():
            return decode_snapshot(value).topic_incarnation
