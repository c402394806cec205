"""Removes the heartbeats of dead processes from `producers`.

A process that ends in good order takes its heartbeats back; one that is killed leaves a record for each topic that it
produced to.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_dead_process
from pulsar_on_kafka.mapping.state.metadata.producer_records import decode_producer_heartbeat
from pulsar_on_kafka.mapping.state.state_keys import ProducerSessionKey, decode_key, encode_key
from pulsar_on_kafka.mapping.state.state_topics import PRODUCERS
from pulsar_on_kafka.service.housekeeping.rounds import DAY_MS, MOST_TOMBSTONES
from pulsar_on_kafka.statelog.api import LogRecord, StateLog, tombstone
from pulsar_on_kafka.statelog.views import read_once

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
    """For one thread.

    A process of this host that is gone is known to be dead; any other one counts as dead a day after its last
    heartbeat. Its claims go first then, so that one that was only stopped for so long finds itself out, and never
    believes in a heartbeat that is removed behind its back.
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
        before_ms = self._clock.now_ms() - self._kept_ms
        keys: list[bytes] = []
        for (topic, session), sign in sorted(signs.found.items()):
            if len(keys) >= MOST_TOMBSTONES or deadline.passed():
                break
            if not is_dead_process(sign.process):
                if sign.deadline_ms >= before_ms:
                    continue
                self._claims.dismiss_session(topic, session, deadline)
            keys.append(encode_key(ProducerSessionKey(topic, session)))
        if tombstone(self._log, PRODUCERS, partition, keys, deadline):
            _log.info("producers=%d removed %d signs of life of dead processes", partition, len(keys))
        return len(keys)
