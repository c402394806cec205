"""Identity of a cursor.

The session of a take-over: 16 bytes that distinguish the records of one owner of a cursor from those of all others.

The key of a segment or a marker is made of the cursor, a session, the number of a save, and a number in it. Each
take-over starts at save 0, so each has a session of its own: with one for each process, a process that came to own a
partition again wrote its first saves under the keys of segments that were still needed, and compaction took those.

Sessions of that former kind are purely random. Those of one take-over begin with `ONE_TAKE_OVER`, which one in four
billion of the others does, so a take-over recognises records that may share their keys with others, and writes those
ledgers anew while they can be read. See mapping/decisions/0024-sessions-of-take-overs.md.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.state.cursors.cursor_state import Lineage
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation

ONE_TAKE_OVER: Final = b"\x00pok"
_SESSION_BYTES: Final = 16


def new_session() -> bytes:
    """A session for one take-over of one cursor, or of several at once."""
    return ONE_TAKE_OVER + secrets.token_bytes(_SESSION_BYTES - len(ONE_TAKE_OVER))


def is_of_one_take_over(session: bytes) -> bool:
    """Whether no two saves with this session have one number."""
    return session.startswith(ONE_TAKE_OVER)


class CursorName(NamedTuple):
    """A subscription on one partition; `topic` is the partitioned topic's full name."""

    topic: str
    partition: int
    subscription: str


@dataclass(frozen=True, slots=True)
class CursorIdentity:
    """A subscription on one partition of one life of a topic. `topic` is the partitioned topic's name."""

    topic: str
    partition: int
    subscription: str
    kafka_topic: str
    kafka_topic_id: str
    topic_incarnation: int
    subscription_incarnation: int
    entries_per_ledger: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.subscription}[{self.partition}]"

    @property
    def name(self) -> CursorName:
        return CursorName(self.topic, self.partition, self.subscription)

    @property
    def life(self) -> CursorIncarnation:
        return CursorIncarnation(self.topic_incarnation, self.subscription_incarnation)

    def lineage(self, session: bytes, version: int, save: int) -> Lineage:
        return Lineage(
            self.kafka_topic_id, self.topic_incarnation, self.subscription_incarnation, session, version, save
        )
