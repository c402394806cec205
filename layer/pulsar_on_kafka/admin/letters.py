"""A dead letter has its origin and its reason; a filter selects letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.admin.stored.shown_messages import ShownMessage, shown
from pulsar_on_kafka.client.consumer.dead_letters import (
    DELAY_TIME,
    DLQ_SUFFIX,
    ORIGIN_MESSAGE_ID,
    ORIGIN_MESSAGE_IDY_TIME,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RECONSUMETIMES,
    REFUSAL_REASON,
)
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka_mapping.errors import InvalidTopicName
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import DELIVERIES

REDRIVE: Final = "pok-redrive"
"""The subscription of a dead letter topic on which a letter is acknowledged that was put back or dropped."""

OF_THE_POLICY: Final = frozenset(
    {
        REAL_TOPIC,
        REAL_SUBSCRIPTION,
        ORIGIN_MESSAGE_ID,
        ORIGIN_MESSAGE_IDY_TIME,
        RECONSUMETIMES,
        DELAY_TIME,
        REFUSAL_REASON,
        "RETRY_TOPIC",
    }
)
"""Properties that dead letters and retry letters have besides those of their messages, also the Java client's."""

REASONS: Final = (REFUSAL_REASON.lower(), "exception", "reason", "error")
"""Names of properties, in any case, that contain the reason of a letter."""


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """A dead letter topic, and its remaining letters. `origin` and `subscription` are those of the oldest remaining
    letter, '' where it has none; `oldest_ms` is the time of its death, None without letters."""

    topic: str
    origin: str
    subscription: str
    left: int
    """Entries: a batch counts as one, a message in chunks as its chunks."""
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A letter, and its origin as far as it is recorded; '' for missing parts."""

    message: ShownMessage
    origin_topic: str
    origin_message_id: str
    subscription: str
    reason: str
    deliveries: int | None
    """The delivery count of its message before it died; None where none was kept."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties of its original message."""
        return own_properties(self.message.properties)


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Letters that are meant: all of these hold. `ids` are (ledger id, entry id, batch index or -1 for the whole
    entry)."""

    ids: frozenset[tuple[int, int, int]] = frozenset()
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, ids: Sequence[NativeMessageId] = (), key: str | None = None, properties: Mapping[str, str] | None = None
    ) -> LetterFilter:
        places = frozenset((each.ledger_id(), each.entry_id(), each.batch_index()) for each in ids)
        return cls(places, key, properties or {})

    def takes(self, message: Message) -> bool:
        if self.ids:
            found = message.message_id()
            entry = (found.ledger_id(), found.entry_id())
            if (*entry, found.batch_index()) not in self.ids and (*entry, -1) not in self.ids:
                return False
        if self.key is not None and message.partition_key() != self.key:
            return False
        return not self.properties or self.properties.items() <= message.properties().items()


@dataclass(slots=True)
class Redriven:
    """The result of a redrive: letters by their target topic, and those that had to stay."""

    to: Counter[str] = field(default_factory=Counter)
    without_origin: int = 0
    """Letters that name no topic."""

    @property
    def letters(self) -> int:
        return sum(self.to.values())


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in OF_THE_POLICY}


def dead_letter(message: Message) -> DeadLetter:
    """The data of a letter."""
    properties = message.properties()
    origin = properties.get(REAL_TOPIC, "")
    by_name = {name.lower(): value for name, value in properties.items()}
    return DeadLetter(
        shown(message),
        origin,
        properties.get(ORIGIN_MESSAGE_ID, properties.get(ORIGIN_MESSAGE_IDY_TIME, "")),
        properties.get(REAL_SUBSCRIPTION) or subscription_in(message.feed.slot.topic_name, origin),
        next((by_name[name] for name in REASONS if name in by_name), ""),
        _deliveries(message, properties),
    )


def _deliveries(message: Message, properties: Mapping[str, str]) -> int | None:
    counted = next((value for name, value in headers_of(message.record) or () if name == DELIVERIES), None)
    if counted is not None:
        return decimal_or_none(counted)
    return decimal_or_none(properties.get(RECONSUMETIMES, "").encode())


def subscription_in(letters: str, origin: str) -> str:
    """The subscription in the default name of a dead letter topic: `<topic>-<subscription>-DLQ`; '' for another
    name."""
    try:
        name, of = str(TopicName.parse(letters).base), TopicName.parse(origin)
    except InvalidTopicName:
        return ""
    for topic in (str(of), str(of.base)):
        if name.startswith(f"{topic}-") and name.endswith(DLQ_SUFFIX):
            return name[len(topic) + 1 : -len(DLQ_SUFFIX)]
    return ""
