"""Reading `cursor_checkpoints`: what a cursor stood at when Kafka has forgotten its group's offsets."""

from __future__ import annotations

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, CursorName
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CursorCheckpoint, decode_checkpoint
from pulsar_on_kafka_mapping.state.state_keys import CursorCheckpointKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSOR_CHECKPOINTS


class CheckpointFold:
    """The live checkpoints of one partition of the state topic, per cursor and session."""

    def __init__(self) -> None:
        self._by_cursor: dict[CursorName, dict[str, CursorCheckpoint]] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        if not isinstance(key, CursorCheckpointKey):
            return
        cursor = CursorName(key.topic, key.partition, key.subscription)
        if record.value is None:
            sessions = self._by_cursor.get(cursor, {})
            sessions.pop(key.session, None)
            if not sessions:
                self._by_cursor.pop(cursor, None)
        else:
            self._by_cursor.setdefault(cursor, {})[key.session] = decode_checkpoint(record.value)

    def newest(self, cursor: CursorName) -> CursorCheckpoint | None:
        sessions = self._by_cursor.get(cursor, {})
        return max(sessions.values(), key=lambda found: (found.version, found.save), default=None)

    def all(self) -> dict[tuple[str, int, str], dict[str, CursorCheckpoint]]:
        """Checkpoints by cursor and session; a copy."""
        return {cursor: dict(sessions) for cursor, sessions in self._by_cursor.items()}


class Checkpoints:
    """The checkpoints. Thread-safe. Memory: one small record per cursor of the state partitions in use."""

    def __init__(self, log: StateLog, clock: Clock) -> None:
        self._views = LogViews(log, CURSOR_CHECKPOINTS, lambda _: CheckpointFold(), clock)

    def newest(self, identity: CursorIdentity, deadline: Deadline) -> CommittedOffset | None:
        """The checkpoint with the highest version, as the commit it copies."""
        found = self._views.query(identity.topic, lambda fold: fold.newest(identity.name), deadline)
        return None if found is None else CommittedOffset(found.kafka_offset, found.metadata)
