"""Records of topics in the state topic `topics`: reads, lists and changes. Kafka's topics are not looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities, Versioned, readable
from pulsar_on_kafka.broker.metadata.removals import OpenedTopic
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    BacklogExceeded,
    LifeState,
    TopicRecord,
    Unused,
    decode_topic,
    encode_topic,
)

_MAX_DECODED: Final = 16_384


class TopicRecords:
    """Thread-safe. Memory: that of `Entities`, and up to 16,384 decoded records: those of topics in use are read each
    second, and change rarely."""

    def __init__(self, entities: Entities[str]) -> None:
        self._entities = entities
        self._decoded: dict[str, tuple[Versioned, TopicRecord]] = {}
        """By topic, the record that was last read with others, and its content."""

    def read(self, name: TopicName, deadline: Deadline) -> Versioned | None:
        """The record of a topic's name as it is now; None for a topic that never existed."""
        return self._entities.read(str(name.base), deadline)

    def of(self, names: Iterable[TopicName], deadline: Deadline) -> dict[TopicName, TopicRecord | None]:
        """Records of these topics; None for a topic that never existed."""
        bases = {str(name.base): name.base for name in names}
        found = self._entities.read_together(bases, deadline)
        return {bases[name]: None if state is None else self._content(name, state) for name, state in found.items()}

    def _content(self, name: str, state: Versioned) -> TopicRecord:
        decoded = self._decoded.get(name)
        if decoded is not None and decoded[0] is state:
            return decoded[1]
        record = decode_topic(state.value)
        if len(self._decoded) >= _MAX_DECODED:
            self._decoded.clear()
        self._decoded[name] = state, record
        return record

    def policies_of(self, names: Iterable[TopicName], deadline: Deadline) -> dict[TopicName, Mapping[str, Any]]:
        """Policies that are set for these topics themselves; nothing for a topic that does not exist."""
        return {name: {} if record is None else record.policies for name, record in self.of(names, deadline).items()}

    def active(self, deadline: Deadline) -> list[TopicRecord]:
        """Topics that exist by their records. Kafka may have lost some of them."""
        return self._in_state(LifeState.ACTIVE, deadline)

    def being_deleted(self, deadline: Deadline) -> list[TopicRecord]:
        """Topics whose deletion has begun and is not finished."""
        return self._in_state(LifeState.DELETING, deadline)

    def _in_state(self, state: LifeState, deadline: Deadline) -> list[TopicRecord]:
        records = readable(self._entities.all(deadline), decode_topic)
        return [record for record in records if record.state is state]

    def on_record(self, partition: int, deadline: Deadline) -> dict[str, tuple[Versioned, TopicRecord]]:
        """Records in one partition of `topics`, by the topic's name."""
        return self._entities.in_partition(partition, decode_topic, deadline)

    def remove_dead(self, partition: int, dead: Mapping[str, Versioned], deadline: Deadline) -> int:
        """Removes the records of DELETED topics, by name. A topic that was created again meanwhile keeps its record."""
        return self._entities.remove_dead(partition, dead, deadline)

    def amend(
        self, name: TopicName, change: Callable[[TopicRecord], TopicRecord | None], deadline: Deadline
    ) -> Versioned | None:
        """Writes the record that `change` makes of the present one, if it differs; None if there is no record."""

        def amended(current: Versioned) -> bytes | None:
            record = decode_topic(current.value)
            changed = change(record)
            return None if changed is None or changed == record else encode_topic(changed)

        return self._entities.amend(str(name.base), amended, deadline)

    def change(
        self, topic: OpenedTopic, change: Callable[[TopicRecord], TopicRecord], deadline: Deadline
    ) -> TopicRecord:
        """Writes the record that `change` makes of an opened topic's record; returns the record as it is then.

        Raises:
            NoSuchTopic: the topic was deleted after it was opened.
            The errors of `change`.
        """

        def changed(record: TopicRecord) -> TopicRecord:
            if record.incarnation != topic.layout.incarnation or record.state is not LifeState.ACTIVE:
                raise errors.NoSuchTopic(f"topic {topic.name} was deleted meanwhile")
            return change(record)

        found = self.amend(topic.name, changed, deadline)
        if found is None:
            raise errors.NoSuchTopic(f"topic {topic.name} was deleted meanwhile")
        return decode_topic(found.value)

    def set_state(self, life: TopicRecord, state: LifeState, deadline: Deadline) -> None:
        """Changes the state of this incarnation, unless it has left the state in `life`."""

        def changed(record: TopicRecord) -> TopicRecord | None:
            return replace(record, state=state) if is_life(record, life, life.state) else None

        self.amend(TopicName.parse(life.name), changed, deadline)

    def note_backlog(self, topic: OpenedTopic, exceeded: BacklogExceeded | None, deadline: Deadline) -> None:
        """Stores for the topic's producers that its backlog exceeds the quota, or no longer. Does nothing for a former
        incarnation."""
        self._note(topic, lambda record: replace(record, backlog_exceeded=exceeded), deadline)

    def note_unused(self, topic: OpenedTopic, unused: Mapping[str, Unused], deadline: Deadline) -> None:
        """Stores since when the topic and its subscriptions are unused. Does nothing for a former incarnation."""
        self._note(topic, lambda record: replace(record, unused=unused), deadline)

    def note_deletion_ends(self, deleting: TopicRecord, ends: Mapping[int, int], deadline: Deadline) -> None:
        """Stores that the deletion of each ledger of a topic was requested, up to these ends of its logs. Does nothing
        for a former incarnation."""

        def noted(record: TopicRecord) -> TopicRecord | None:
            if not is_life(record, deleting, LifeState.DELETING) or record.deletion_ends:
                return None
            return replace(record, deletion_ends={str(p): end for p, end in ends.items()})

        self.amend(TopicName.parse(deleting.name), noted, deadline)

    def _note(self, topic: OpenedTopic, change: Callable[[TopicRecord], TopicRecord], deadline: Deadline) -> None:
        def noted(record: TopicRecord) -> TopicRecord | None:
            same = record.incarnation == topic.layout.incarnation and record.state is LifeState.ACTIVE
            return change(record) if same else None

        self.amend(topic.name, noted, deadline)


def is_life(record: TopicRecord, life: TopicRecord, state: LifeState | None = None) -> bool:
    # An incarnation that is being created has no number yet, which reads as 0, and another one may have that number.
    same = (record.incarnation, record.kafka_topic_id) == (life.incarnation, life.kafka_topic_id)
    return same and state in (None, record.state)
