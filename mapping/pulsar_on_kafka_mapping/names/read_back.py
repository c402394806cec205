"""Names that the mapping made are read back: of what Kafka lists, what is ours. That this can be done proves them
different."""

from __future__ import annotations

import re
from typing import Final

from pulsar_on_kafka_mapping.encoding.escaping import Escaper
from pulsar_on_kafka_mapping.errors import InvalidSubscriptionName, InvalidTopicName
from pulsar_on_kafka_mapping.names.subscription_group import (
    _ESCAPER,
    _KAFKA_TOPIC,
    check_subscription_name,
)
from pulsar_on_kafka_mapping.names.topic_name import (
    _LOCAL_ESCAPER,
    _NAMESPACE_ESCAPER,
    _NON_PERSISTENT_PREFIX,
    NON_PERSISTENT,
    PERSISTENT,
    TopicName,
    kafka_topic,
)

_ESCAPE: Final = re.compile(r"-x([0-9a-f]{1,6})-")


def unescape(escaper: Escaper, escaped: str) -> str | None:
    """The text whose form this is; None when it is the form of no text (only canonical forms are taken)."""
    try:
        text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), escaped)
    except ValueError:  # beyond the last code point
        return None
    return text if escaper.escape(text) == escaped else None


def topic_from_kafka(text: str) -> TopicName | None:
    """The topic whose Kafka topic this is; `kafka_topic` of it gives `text` again.

    None for everything else: foreign topics, forms that are not canonical, and hashed names (their full name is in the
    topic's metadata record).
    """
    domain, escaped = PERSISTENT, text
    if text.startswith(_NON_PERSISTENT_PREFIX):
        domain, escaped = NON_PERSISTENT, text[len(_NON_PERSISTENT_PREFIX) :]
    parts = escaped.split(".")
    if len(parts) != 3:
        return None
    tenant, namespace = (unescape(_NAMESPACE_ESCAPER, part) for part in parts[:2])
    local_name = unescape(_LOCAL_ESCAPER, parts[2])
    if tenant is None or namespace is None or local_name is None:
        return None
    try:
        name = TopicName(domain, tenant, namespace, local_name)
    except InvalidTopicName:
        return None
    return name if kafka_topic(name) == text else None


def parse_group_id(text: str) -> tuple[str, str] | None:
    """(Kafka topic, subscription) of a group; None for a group that is not ours."""
    topic, separator, escaped = text.partition("/")
    if not separator or _KAFKA_TOPIC.fullmatch(topic) is None:
        return None
    subscription = unescape(_ESCAPER, escaped)
    if subscription is None:
        return None
    try:
        check_subscription_name(subscription)
    except InvalidSubscriptionName:
        return None
    return topic, subscription
