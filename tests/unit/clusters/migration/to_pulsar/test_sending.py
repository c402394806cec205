"""Messages become those of Pulsar's client, and its producers send them in their order."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.errors import ConnectFailed, Refused
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka.client.values.message import ReceivedMessage
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import PulsarMessage
from pulsar_on_kafka.clusters.migration.to_pulsar.exported_copies import MessagePlace, sequence_id
from pulsar_on_kafka.clusters.migration.to_pulsar.outgoing import PreparedMessage, outgoing
from pulsar_on_kafka.clusters.migration.to_pulsar.sending import PartitionSender
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.records.message_record import MessageMetadata, decode_headers, encode_headers
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType

pytest.importorskip("pulsar")

V0, V1 = SchemaVersion(0).header(), SchemaVersion(1).header()
NAME = "pok.export.kafka.1.0"


class Record:
    """A record of Kafka's client."""

    def __init__(self, key: bytes | None, value: bytes | None, metadata: MessageMetadata) -> None:
        self._parts = key, value, encode_headers(metadata)

    def key(self) -> bytes | None:
        return self._parts[0]

    def value(self) -> bytes | None:
        return self._parts[1]

    def headers(self) -> Any:
        return self._parts[2]


def _prepared(key: bytes | None, value: bytes | None, metadata: MessageMetadata) -> PreparedMessage:
    inbox = Endpoint("export", 4, delivery_type=ReceivedMessage)
    feed = inbox.feed(PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1)))
    record = Record(key, value, metadata)
    return outgoing(ReceivedMessage(cast("Any", record), feed, 7, 0), decode_headers(record.headers()), 5)


def test_a_message_with_all_that_the_client_sends() -> None:
    found = _prepared(
        "schlüssel".encode(),
        None,
        MessageMetadata(
            {"a": "b"}, event_time_ms=5, deliver_at_ms=9, ordering_key=b"o", schema_version=V1, publish_time_ms=3
        ),
    )
    content = PulsarMessage(None, "schlüssel", "o", {"a": "b"}, 5, sequence_id(MessagePlace(7, 0)))
    assert found == PreparedMessage(content, V1, 9)
    alone = _prepared(b"o", b"x", MessageMetadata(key_is_ordering_key=True))
    assert (alone.content.key, alone.content.ordering_key, alone.deliver_at_ms) == ("", "o", None)


def test_a_message_that_may_be_in_chunks_has_another_sequence_id_each_time() -> None:
    large = _prepared(None, b"x" * 65_536, MessageMetadata())
    assert large.content.sequence_id == sequence_id(MessagePlace(7, 5))
    assert large.sequence_ids == (sequence_id(MessagePlace(7, 0)), sequence_id(MessagePlace(8, 0)) - 1)
    small = _prepared(None, b"x" * 65_535, MessageMetadata())
    assert small.sequence_ids == (sequence_id(MessagePlace(7, 0)),) * 2


@pytest.mark.parametrize(
    ("key", "metadata", "reason"),
    [
        (b"\xff", MessageMetadata(), r"its key b'\\xff' is no UTF-8"),
        (b"\xfe", MessageMetadata(key_is_ordering_key=True), r"its ordering key b'\\xfe' is no UTF-8"),
        (b"k", MessageMetadata(ordering_key=b"\xff"), "its ordering key"),
        (b"k", MessageMetadata({"a": "b" * (1 << 20)}), "its keys and properties have 1048578 bytes"),
    ],
)
def test_what_the_client_cannot_send_is_rejected(key: bytes, metadata: MessageMetadata, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        _prepared(key, b"x", metadata)


class Pulsar:
    """Pulsar's client with what was called. Messages are answered at once."""

    def __init__(self, stored: int = -1, fails_at: int = -1) -> None:
        self.stored = stored
        self.fails_at = fails_at
        self.calls: list[str] = []

    def create_producer(self, _topic: str, *, producer_name: str, schema: Any = None, **_options: Any) -> Any:
        assert producer_name == NAME
        self.calls.append("open" if schema is None else f"open {schema.schema_info().name()}")

        def send_async(_content: bytes, reply: Callable[[Any, Any], None], *, sequence_id: int, **_more: Any) -> None:
            self.calls.append(f"send {sequence_id}")
            reply(SimpleNamespace(name="Ok" if sequence_id != self.fails_at else "TopicTerminated"), None)

        return SimpleNamespace(
            send_async=send_async,
            last_sequence_id=lambda: self.stored,
            close=lambda: self.calls.append("close"),
        )


def _sender(pulsar: Pulsar) -> PartitionSender:
    return PartitionSender(
        pulsar,
        "persistent://public/default/t",
        NAME,
        {V0: SchemaInfo(SchemaType.STRING, b"", "old"), V1: SchemaInfo(SchemaType.STRING, b"", "new")},
    )


def _message(number: int, schema: bytes | None) -> PreparedMessage:
    return PreparedMessage(PulsarMessage(b"x", sequence_id=number), schema, None)


def test_the_progress_is_asked_by_the_newest_schema() -> None:
    pulsar = Pulsar(9)
    sender = _sender(pulsar)
    assert sender.last_sequence_id() == 9
    sender.close()
    sender.close()
    assert pulsar.calls == ["open new", "close"]


def test_the_producer_has_the_schema_of_the_message() -> None:
    pulsar = Pulsar()
    sender = _sender(pulsar)
    deleted = SchemaVersion(7).header()
    for number, schema in enumerate([V0, V0, V1, None, deleted, V0], 1):
        sender.send(_message(number, schema))
    sender.drain()
    sender.close()
    assert pulsar.calls == [
        "open old", "send 1", "send 2", "close", "open new", "send 3", "close", "open", "send 4", "send 5",
        "close", "open old", "send 6", "close",
    ]  # fmt: skip
    assert (sender.counts.messages, sender.counts.bytes) == (6, 6)


def test_nothing_is_sent_behind_a_rejected_message() -> None:
    pulsar = Pulsar(fails_at=2)
    sender = _sender(pulsar)
    sender.send(_message(1, None))
    sender.send(_message(2, None))
    with pytest.raises(ConnectFailed, match="TopicTerminated"):
        sender.send(_message(3, V0))
    with pytest.raises(ConnectFailed, match="TopicTerminated"):
        sender.drain()
    assert "send 3" not in pulsar.calls


@pytest.mark.parametrize("kind", [SchemaType.KEY_VALUE, SchemaType.BOOLEAN])
def test_schemas_that_the_client_cannot_send_are_named(kind: SchemaType) -> None:
    pulsar = Pulsar()
    schemas: dict[bytes | None, SchemaInfo | None] = {V0: SchemaInfo(kind, b"", "s")}
    sender = PartitionSender(pulsar, "persistent://public/default/t", NAME, schemas)
    assert sender.last_sequence_id() == -1
    with pytest.raises(Refused, match=f"its schema is {kind.name}"):
        sender.send(_message(1, V0))
    assert pulsar.calls == ["open", "close"]
