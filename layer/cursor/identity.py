"""Identity of a cursor."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka.mapping.state.cursors.cursor_state import Lineage


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

    def lineage(self, session: bytes, version: int, save: int) -> Lineage:
        return Lineage(
            self.kafka_topic_id, self.topic_incarnation, self.subscription_incarnation, session, version, save
        )
