"""The newest checkpoint of a cursor, among those of its sessions."""

from __future__ import annotations

from itertools import count

from pulsar_on_kafka.broker.cursor.checkpoints import CheckpointFold
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CursorCheckpoint, encode_checkpoint
from pulsar_on_kafka_mapping.state.state_keys import CursorCheckpointKey, encode_key

CURSOR = CursorName("persistent://public/default/orders", 0, "audit")
OTHER = CURSOR._replace(subscription="billing")


class Fold(CheckpointFold):
    def __init__(self) -> None:
        super().__init__()
        self._offsets = count()

    def write(self, cursor: CursorName, session: str, checkpoint: CursorCheckpoint | None) -> None:
        value = None if checkpoint is None else encode_checkpoint(checkpoint)
        key = encode_key(CursorCheckpointKey(*cursor, session))
        self.apply(LogRecord(next(self._offsets), key, value, 0))


def _at(version: int, save: int) -> CursorCheckpoint:
    return CursorCheckpoint(version, save, 100 * version + save, "", 0)


def test_of_several_sessions_the_highest_version_and_save_counts() -> None:
    fold = Fold()
    assert fold.newest(CURSOR) is None
    fold.write(CURSOR, "aa", _at(2, 1))
    fold.write(CURSOR, "bb", _at(1, 9))
    fold.write(OTHER, "cc", _at(7, 7))
    assert fold.newest(CURSOR) == _at(2, 1)
    fold.write(CURSOR, "bb", _at(2, 2))
    assert fold.newest(CURSOR) == _at(2, 2)
    assert fold.all() == {CURSOR: {"aa": _at(2, 1), "bb": _at(2, 2)}, OTHER: {"cc": _at(7, 7)}}


def test_a_tombstone_ends_one_session_and_the_last_one_ends_the_cursor() -> None:
    fold = Fold()
    fold.write(CURSOR, "aa", _at(1, 1))
    fold.write(CURSOR, "bb", _at(1, 2))
    fold.write(CURSOR, "bb", None)
    fold.write(OTHER, "cc", None)
    assert fold.all() == {CURSOR: {"aa": _at(1, 1)}}
    fold.write(CURSOR, "aa", None)
    assert fold.all() == {}
