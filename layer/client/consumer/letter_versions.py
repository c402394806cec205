"""A copy of a message carries the version of the schema that its payload was written with.

Source: ConsumerImpl.processPossibleToDLQ and doReconsumeLater of Java's client, whose copies carry the reader schema
of each message. Differs from Pulsar: the C++ and Python clients' copies carry the consumer's own schema, whatever wrote
them. The schemas of copies are registered in the order in which copies come, unjudged: they were judged where the
messages were sent, and where a copy is refused (as by Java's client) its message is delivered again for ever.
"""

from __future__ import annotations

import logging
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.registry.model import SchemaPolicies
from pulsar_on_kafka.registry.registry import SchemaRegistry
from pulsar_on_kafka.schema_compat import CompatibilityStrategy
from pulsar_on_kafka.sending.outgoing_schema import version_header

_log: Final = logging.getLogger(__name__)
_ACCEPTED: Final = SchemaPolicies(strategy=CompatibilityStrategy.ALWAYS_COMPATIBLE)


class LetterVersions:
    """The schema of a copied message is registered in the topic of the copies, and known from then on. Thread-safe."""

    def __init__(self, schemas: SchemaRegistry, timeout_s: float) -> None:
        self._schemas = schemas
        self._timeout_s = timeout_s

    def of(self, message: Message, topic: str) -> list[tuple[str, bytes]]:
        """The header for a copy of `message` in `topic`; none for one that was sent without a schema, or with one that
        is not to be had (which is logged).

        Raises:
            LayerError: Kafka did not say in time; the copy is to be made again.
        """
        written = message.written_with()
        if written is None:
            return []
        deadline = Deadline.after(self._timeout_s)
        try:
            version = SchemaVersion.from_header(written)
            writer = self._schemas.schema(TopicName.parse(message.topic_name()), version, deadline).info
            registered = self._schemas.for_producer(TopicName.parse(topic), writer, deadline, _ACCEPTED)
        except (errors.Refused, errors.Corrupt, errors.NotAuthorized, MappingError) as refused:
            _log.warning("topic=%s gets a copy of %s without its schema: %s", topic, message.message_id(), refused)
            return []
        return [] if registered is None else [version_header(registered)]
