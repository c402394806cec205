"""Heartbeats of this process's session on each topic with producers of it, and those of other sessions."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka.base.clock import ClusterClock, Moment
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_dead_process, this_process
from pulsar_on_kafka.broker.metadata.producers.fence_view import HeartbeatsAndFences
from pulsar_on_kafka.broker.metadata.producers.heartbeat_rests import HeartbeatRests
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.removals import REQUESTS_ARRIVE_WITHIN_MS
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    ProducerHeartbeat,
    encode_producer_heartbeat,
    producer_heartbeat,
)
from pulsar_on_kafka_mapping.state.state_keys import ProducerSessionKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS

LIFE_MS: Final = 10_000
"""A heartbeat counts for this time."""


class SentHeartbeat(NamedTuple):
    """A heartbeat on record counts for so long after this process began to send it."""

    begun: Moment
    life_ms: int


class SessionHeartbeats:
    """The part of `ProducerRegistry` that other processes judge by. Methods that read are for any thread, the others
    for one thread at a time for each topic.

    Memory: three entries for each topic with producers of this process.
    """

    def __init__(self, log: StateLog, views: LogViews[HeartbeatsAndFences], clock: ClusterClock, session: str) -> None:
        self._log = log
        self._views = views
        self._clock = clock
        self._session = session
        self._process = this_process()
        self._counting: dict[str, SentHeartbeat] = {}
        """By topic, the last heartbeat after which all claims of this process stood."""
        self.rests: Final = HeartbeatRests()
        self._lock = threading.Lock()
        self._gave_up_ms: dict[str, int] = {}
        """By topic, when this process last gave up records of it that may still be stored. Memory: those of the last
        `REQUESTS_ARRIVE_WITHIN_MS`."""

    def send(self, held: Mapping[str, Sequence[Membership]], deadline: Deadline) -> SentHeartbeat:
        """Append, together, the heartbeats of topics in one partition of `producers`; each describes the producers
        `held` on its topic. They do not `count` yet."""
        begun = Moment.of(self._clock)
        until_ms = self._clock.now_ms() + LIFE_MS
        records = []
        for topic, memberships in held.items():
            publishers = [membership.describe() for membership in memberships if membership.describe is not None]
            self.rests.sent(topic, len(memberships), self._clock.monotonic())
            heartbeat = encode_producer_heartbeat(producer_heartbeat(until_ms, self._process, publishers))
            records.append((self._key(topic), heartbeat))
        if records:
            self._log.append_many(PRODUCERS, PRODUCERS.partition_for(next(iter(held))), records, deadline)
        # The broker's answer has told when it stored this, at the earliest after `begun`: the clock may have lagged.
        return SentHeartbeat(begun, min(LIFE_MS, until_ms - self._clock.known_now_ms()))

    def count(self, topic: str, sent: SentHeartbeat) -> None:
        """All claims of this process stood after the heartbeat."""
        self._counting[topic] = sent

    def is_sure_of(self, topic: str) -> bool:
        """The last heartbeat counts, so no other process can have a name that this one holds there. For any thread.

        Sends no request, and is right after a suspension: the wall clock shows it where the monotonic one stood still.
        """
        last = self._counting.get(topic)
        return last is not None and last.begun.seconds_until(Moment.of(self._clock)) * 1000 < last.life_ms

    def give_up(self, topics: Collection[str]) -> None:
        """Note that records of these topics were given up which may still be stored."""
        now_ms = self._clock.now_ms()
        with self._lock:
            recent = {
                topic: at_ms for topic, at_ms in self._gave_up_ms.items() if at_ms > now_ms - REQUESTS_ARRIVE_WITHIN_MS
            }
            self._gave_up_ms = {**recent, **dict.fromkeys(topics, now_ms)}

    def withdraw(self, topic: str, deadline: Deadline) -> None:
        """Record that this process has no producer on a topic any more. An expired heartbeat stays where the process
        gave up records that may still be stored, so that a deletion of the topic names this session."""
        self._counting.pop(topic, None)
        self.rests.forget(topic)
        gave_up_ms, now_ms = self._gave_up_ms.get(topic), self._clock.now_ms()
        value: bytes | None = None
        if gave_up_ms is not None and gave_up_ms > now_ms - REQUESTS_ARRIVE_WITHIN_MS:
            value = encode_producer_heartbeat(producer_heartbeat(gave_up_ms, self._process, []))
        self._log.append(PRODUCERS, PRODUCERS.partition_for(topic), self._key(topic), value, deadline)

    def _key(self, topic: str) -> bytes:
        return encode_key(ProducerSessionKey(topic, self._session))

    # Of all sessions, for any thread ------------------------------------------------------------------------------

    def deadline_ms(self, topic: str, session: str, deadline: Deadline) -> int:
        """The time until which the session's heartbeat counts; 0 without one."""
        heartbeat = self._views.query(topic, lambda state: state.heartbeats.get((topic, session)), deadline)
        return 0 if heartbeat is None else heartbeat.deadline_ms

    def producers_of(self, topic: str, session: str, deadline: Deadline) -> int:
        """The number of a session's producers on a topic in its last heartbeat; 0 without one."""
        heartbeat = self._views.query(topic, lambda state: state.heartbeats.get((topic, session)), deadline)
        return 0 if heartbeat is None else len(heartbeat.publishers) + heartbeat.unlisted

    def may_have_sent(self, topic: str, deadline: Deadline) -> set[str]:
        """Sessions that have not withdrawn their heartbeat, and whose records may still arrive."""
        since_ms = self._clock.now_ms() - REQUESTS_ARRIVE_WITHIN_MS
        return self._views.query(
            topic,
            lambda state: {
                session
                for (place, session), heartbeat in state.heartbeats.items()
                if place == topic and heartbeat.deadline_ms > since_ms
            },
            deadline,
        )

    def publishers(self, topic: str, deadline: Deadline) -> list[ProducerHeartbeat]:
        """Each living process's producers on a topic, at most 3 s old, by process."""
        found = self._views.query(
            topic,
            lambda state: [heartbeat for (place, _), heartbeat in state.heartbeats.items() if place == topic],
            deadline,
        )
        now = self._clock.now_ms()
        living = (
            heartbeat for heartbeat in found if heartbeat.deadline_ms > now and not is_dead_process(heartbeat.process)
        )
        return sorted(living, key=lambda heartbeat: heartbeat.process)
