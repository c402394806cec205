"""The schemas of a topic on two clusters: which version there is which one here."""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.registry.model import SchemaPolicies
from pulsar_on_kafka.schema_compat import CompatibilityStrategy

_ASK_S: Final = 30.0
_WHATEVER_IT_IS: Final = SchemaPolicies(CompatibilityStrategy.ALWAYS_COMPATIBLE)
"""It was accepted where the message was sent. Source: Pulsar's replicator registers schemas without a check, too."""


class SchemasThere:
    """For one thread. Memory: 16 bytes and some for each version that was met."""

    def __init__(self, here: Node, there: Node, topic: TopicName) -> None:
        self._here = here
        self._there = there
        self._topic = topic.base
        self._known: dict[bytes, bytes] = {}

    def version(self, header: bytes) -> bytes:
        """The header that names a schema there, by the one that names it here; registers it there when it is new.

        Raises:
            NoSuchSchema: it was removed here.
            LayerError: it cannot be read here or written there now.
        """
        known = self._known.get(header)
        if known is None:
            deadline = Deadline.after(_ASK_S)
            stored = self._here.schemas.schema(self._topic, SchemaVersion.from_header(header), deadline)
            version = self._there.schemas.for_producer(self._topic, stored.info, deadline, _WHATEVER_IT_IS)
            known = self._known[header] = header if version is None else version.header()
        return known
