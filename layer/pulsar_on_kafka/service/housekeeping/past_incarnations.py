"""Removes `producers` records of earlier incarnations of topics (beginnings of epochs, highest sequence ids), and the
heartbeats of dead processes.

The former are never read: every such record names its incarnation, and no incarnation returns. A killed process leaves
a heartbeat for each topic that it produced to; an orderly end removes them.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol, TypeAlias

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.processes import is_dead_process
from pulsar_on_kafka.broker.metadata.removals import REQUESTS_ARRIVE_WITHIN_MS
from pulsar_on_kafka.service.housekeeping.cursors import CursorTopics
from pulsar_on_kafka.service.housekeeping.rounds import DAY_MS, MAX_TOMBSTONES
from pulsar_on_kafka.statelog.api import LogRecord, StateLog, tombstone
from pulsar_on_kafka.statelog.views import read_once
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    decode_bounds,
    decode_fence,
    decode_producer_heartbeat,
    decode_snapshot,
    decode_take_over,
)
from pulsar_on_kafka_mapping.state.state_keys import (
    ProducerBoundsKey,
    ProducerKey,
    ProducerSequenceKey,
    ProducerSessionKey,
    TakeOverKey,
    decode_key,
    encode_key,
)
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS

_log: Final = logging.getLogger(__name__)


class Claims(Protocol):
    """The call on `metadata.producers.registry.ProducerRegistry` that takes a dead session's claims back."""

    def dismiss_session(self, topic: str, session: str, deadline: Deadline) -> None: ...


class _Sign(NamedTuple):
    deadline_ms: int
    process: str


class _Signs:
    """Fold of one partition of `producers`. Memory: some 300 bytes for each process and topic."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], _Sign] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        if not isinstance(key, ProducerSessionKey):
            return
        if record.value is None:
            self.found.pop((key.topic, key.session), None)
        else:
            sign = decode_producer_heartbeat(record.value)
            self.found[key.topic, key.session] = _Sign(sign.deadline_ms, sign.process)


class HeartbeatHousekeeping:
    """Removes heartbeats, in one thread.

    A missing process of this host is known to be dead; its heartbeat stays while a record that it sent may still
    arrive. Any other process counts as dead a day after its last heartbeat. Its claims are removed first, so that a
    process that was only paused finds its claim gone, and never relies on a removed heartbeat.
    """

    name = "signs of life"

    def __init__(self, log: StateLog, clock: Clock, claims: Claims, *, kept_ms: int = DAY_MS) -> None:
        self._log = log
        self._clock = clock
        self._claims = claims
        self._kept_ms = kept_ms

    def run(self, partition: int, deadline: Deadline) -> int:
        """Remove heartbeats of the dead. At most 20,000."""
        signs, _ = read_once(self._log, PRODUCERS, partition, _Signs, self._clock, deadline)
        now_ms = self._clock.now_ms()
        keys: list[bytes] = []
        for (topic, session), sign in sorted(signs.found.items()):
            if len(keys) >= MAX_TOMBSTONES or deadline.passed():
                break
            is_dead = is_dead_process(sign.process)
            if sign.deadline_ms >= now_ms - (
                min(REQUESTS_ARRIVE_WITHIN_MS, self._kept_ms) if is_dead else self._kept_ms
            ):
                continue
            if not is_dead:
                self._claims.dismiss_session(topic, session, deadline)
            keys.append(encode_key(ProducerSessionKey(topic, session)))
        if tombstone(self._log, PRODUCERS, partition, keys, deadline):
            _log.info("producers=%d removed %d signs of life of dead processes", partition, len(keys))
        return len(keys)


_MAX_FOUND: Final = 50_000
_TOPIC_S: Final = 10.0


_LifeKey: TypeAlias = ProducerKey | ProducerBoundsKey | ProducerSequenceKey | TakeOverKey
"""Keys of records of one incarnation of their topic."""


class _OfLives:
    """Fold of one partition of `producers`: keys with the incarnation that their record names, by topic; of records
    that were written before `before_ms`. Bounded: at most 50,000, the others after those are gone."""

    def __init__(self, before_ms: int) -> None:
        self._before_ms = before_ms
        self._room = _MAX_FOUND
        self.found: dict[str, dict[bytes, int]] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        if not isinstance(key, _LifeKey):
            return
        keys = self.found.get(key.topic, {})
        if keys.pop(record.key, None) is not None:
            self._room += 1
        if record.value is not None and record.timestamp_ms < self._before_ms and self._room > 0:
            self.found.setdefault(key.topic, {})[record.key] = _incarnation(key, record.value)
            self._room -= 1


class DeadLives:
    """Removes earlier incarnations, in one thread. Memory: during a call, see `_OfLives`."""

    name = "dead lives"

    def __init__(self, log: StateLog, clock: Clock, topics: CursorTopics, *, kept_ms: int = DAY_MS) -> None:
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
            if len(keys) >= MAX_TOMBSTONES or deadline.passed():
                break
            within = deadline.at_most(_TOPIC_S)
            try:
                life = self._topics.last_life(TopicName.parse(topic), within)
            except LayerError as failure:
                _log.warning("topic=%s its state cannot be read now: %s", topic, failure)
                continue
            if life is not None:
                first_living = life.incarnation + (life.topic is None)
                keys += [key for key, incarnation in of_topic.items() if incarnation < first_living]
        if tombstone(self._log, PRODUCERS, partition, keys, deadline):
            _log.info("producers=%d removed %d records of topics' lives that are over", partition, len(keys))
        return len(keys)


def _incarnation(key: _LifeKey, value: bytes) -> int:
    match key:
        case ProducerKey():
            return decode_fence(value).topic_incarnation
        case ProducerBoundsKey():
            return decode_bounds(value).topic_incarnation
        case ProducerSequenceKey():
            return decode_snapshot(value).topic_incarnation
        case TakeOverKey():
            return decode_take_over(value).topic_incarnation
