"""Sends the messages of one partition to Pulsar, with the official Python client (`pulsar-client`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import official_client
from pulsar_on_kafka.clusters.migration.to_pulsar.outgoing import PreparedMessage
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType

_log: Final = logging.getLogger(__name__)

MAX_MESSAGES: Final = 1_000
MAX_BYTES: Final = 32 * 1024 * 1024
_REPLY_S: Final = 120.0
_WAIT_S: Final = 0.5
"""A signal that arrives just before the thread begins to wait is seen only when the wait ends."""


@dataclass(slots=True)
class SentCounts:
    messages: int = 0
    bytes: int = 0


class _InFlight:
    """Messages without a reply, counted by the caller and by the client's threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages = 0
        self._bytes = 0
        self._replies = 0
        self._failure: str | None = None

    def add(self, size: int) -> None:
        with self._changed:
            self._messages += 1
            self._bytes += size

    def replied(self, size: int, result: Any, _message_id: Any) -> None:
        with self._changed:
            self._messages -= 1
            self._bytes -= size
            self._replies += 1
            if self._failure is None and getattr(result, "name", str(result)) != "Ok":
                self._failure = str(result)
            self._changed.notify_all()

    def wait_until_below(self, messages: int, size: int, where: str) -> None:
        """Waits until fewer messages and bytes are in flight. Raises ConnectFailed, AppendOutcomeUnknown."""
        with self._changed:
            replies, deadline = self._replies, Deadline.after(_REPLY_S)
            while self._failure is None and self._messages and (self._messages >= messages or self._bytes >= size):
                if self._replies != replies:
                    replies, deadline = self._replies, Deadline.after(_REPLY_S)
                if deadline.passed():
                    raise errors.AppendOutcomeUnknown(
                        f"sending to {where}: Pulsar does not reply for {_REPLY_S:.0f} s; run the export again"
                    )
                self._changed.wait(min(_WAIT_S, deadline.remaining_s()))
            if self._failure is not None:
                raise errors.ConnectFailed(f"sending to {where}: {self._failure}; run the export again")


class PartitionSender:
    """Sends to one partition, for one thread. Its producer has the schema of the last message.

    Memory: `MAX_MESSAGES` messages in flight, of `MAX_BYTES` together beside the last one.
    """

    def __init__(
        self, client: Any, partition: str, name: str, schemas: Mapping[bytes | None, SchemaInfo | None]
    ) -> None:
        """`partition`: the full name in Pulsar. `name`: the producer's. `schemas`: by the header that names them here,
        oldest first."""
        self._pulsar: ModuleType = official_client()
        self._client = client
        self._partition = partition
        self._name = name
        self._schemas = {None: None, **schemas}
        self._producer: Any = None
        self._schema: bytes | None = None
        self._in_flight = _InFlight()
        self.counts = SentCounts()

    def last_sequence_id(self) -> int:
        """The highest sequence id that Pulsar has stored of this name, -1 for none. Raises as `send`."""
        supported = [
            header for header, info in self._schemas.items() if info is None or _unsupported(self._pulsar, info) is None
        ]
        self._open(supported[-1])  # Pulsar may be set to let no producer without a schema in, where there is one
        return int(self._producer.last_sequence_id())

    def send(self, message: PreparedMessage) -> None:
        """Messages are stored in the order of the calls.

        Raises:
            Refused: the client cannot send a message of its schema.
            ConnectFailed: Pulsar rejects it, or cannot be reached.
            AppendOutcomeUnknown: Pulsar does not reply.
        """
        header = message.schema if message.schema in self._schemas else None  # of a deleted schema
        self._open(header)
        self._in_flight.wait_until_below(MAX_MESSAGES, MAX_BYTES, self._partition)
        content, size = message.content, message.bytes
        self._in_flight.add(size)
        try:
            self._producer.send_async(
                content.payload,
                partial(self._in_flight.replied, size),
                properties=dict(content.properties),
                partition_key=content.key,
                ordering_key=content.ordering_key,
                sequence_id=content.sequence_id,
                event_timestamp=content.event_time_ms or None,
                deliver_at=message.deliver_at_ms,
            )
        except self._pulsar.PulsarException as failure:
            raise errors.ConnectFailed(f"sending to {self._partition}: {failure}") from failure
        self.counts.messages += 1
        self.counts.bytes += size

    def drain(self) -> None:
        """Waits until all are stored. Raises as `send`."""
        self._in_flight.wait_until_below(1, MAX_BYTES, self._partition)

    def close(self) -> None:
        """A second call does nothing. Messages in flight may be stored or not. Failures are logged."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            try:
                producer.close()
            except self._pulsar.PulsarException as failure:
                _log.warning("topic=%s a producer of the export did not close: %s", self._partition, failure)

    def _open(self, header: bytes | None) -> None:
        if self._producer is not None and header == self._schema:
            return
        self.drain()  # a producer has one schema, and its name is taken while it is open
        self.close()
        info = self._schemas[header]
        if info is not None and (reason := _unsupported(self._pulsar, info)) is not None:
            raise errors.Refused(reason)
        options = {} if info is None else {"schema": _raw_schema(self._pulsar, info)}
        try:
            self._producer = self._client.create_producer(
                self._partition,
                producer_name=self._name,
                send_timeout_millis=0,  # after a time-out, later messages would be stored without the earlier ones
                max_pending_messages=0,  # bounded here
                chunking_enabled=True,
                **options,
            )
        except self._pulsar.PulsarException as failure:
            raise errors.ConnectFailed(
                f"producer {self._name} of {self._partition}: {failure} (does another export of this tenant run?)"
            ) from failure
        self._schema = header


def _unsupported(pulsar: ModuleType, info: SchemaInfo) -> str | None:
    """The reason why the client cannot send messages of a schema; None if it can."""
    if info.type is SchemaType.KEY_VALUE:  # client 3.13 crashes with content that is no KeyValue, and Python has none
        return "its schema is KEY_VALUE, which Pulsar's Python client cannot send"
    known = pulsar._pulsar.SchemaType.__members__
    if info.type.name not in known:
        return f"its schema is {info.type.name}, which Pulsar's Python client does not know"
    return None


def _raw_schema(pulsar: ModuleType, info: SchemaInfo) -> Any:
    """A schema of the client that takes payloads as bytes. The client gives it no properties, by which Pulsar does not
    distinguish versions."""
    base = pulsar._pulsar
    schema = pulsar.schema.BytesSchema()
    schema._schema_info = base.SchemaInfo(base.SchemaType.__members__[info.type.name], info.name, info.schema)
    return schema
