"""Dead letters and retry letters name their origin in properties with the official names."""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.names.topic_name import TopicName

ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_MESSAGE_IDY_TIME: Final = "ORIGIN_MESSAGE_IDY_TIME"
"""The same as `ORIGIN_MESSAGE_ID`: Java's name for it is older than its spelling."""

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"


def origin(message: Message) -> dict[str, str]:
    """The origin's properties as the C++ and Python clients write them. Source: ConsumerImpl::processPossibleToDLQ."""
    return {ORIGIN_MESSAGE_ID: str(message.message_id()), REAL_TOPIC: message.topic_name()}


def origin_as_java(message: Message, subscription: str, *, put_off: bool) -> dict[str, str]:
    """The origin's properties as Java's client writes them, which alone knows retry letters: with its form of ids, and
    the topic of what was put off without its partition. Source: ConsumerImpl.getPropertiesMap.
    """
    message_id = java_text(message.message_id())
    return {
        REAL_TOPIC: str(TopicName.parse(message.topic_name()).base) if put_off else message.topic_name(),
        REAL_SUBSCRIPTION: subscription,
        ORIGIN_MESSAGE_IDY_TIME: message_id,
        ORIGIN_MESSAGE_ID: message_id,
    }


def java_text(message_id: NativeMessageId) -> str:
    """`toString()` of Java's ids: ledger:entry:partition, and :index in a batch; first chunk;last chunk."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.partition()}"
    first = message_id.first_chunk()
    if first is not None:
        return f"{first.ledger_id}:{first.entry_id}:{message_id.partition()};{text}"
    return text if message_id.batch_index() < 0 else f"{text}:{message_id.batch_index()}"
