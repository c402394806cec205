"""Entries of a topic over REST: the payload as the body, its metadata as headers."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.admin import EntryTransaction, StoredEntry
from pulsar_on_kafka.exceptions import SubscriptionNotFound
from pulsar_on_kafka.gateway.handlers.entry_encoder import decoded_entry
from pulsar_on_kafka.gateway.rest.cursors import check_one_partition, check_persistent, place_of
from pulsar_on_kafka.gateway.rest.entry_headers import flag, metadata_headers
from pulsar_on_kafka.gateway.rest.positions import EntryPosition
from pulsar_on_kafka.gateway.rest.request import Binary, RestError, RestRequest
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.records.message_record import Codec, CompressionInfo
from pulsar_on_kafka_mapping.wire.compression import decompress


def peek(request: RestRequest) -> Binary:
    """The entry at a position, from 1, of a subscription's backlog. As in Pulsar, a missing subscription is created at
    the topic's beginning."""
    check_persistent(request, "Peek messages on a non-persistent topic is not allowed")
    check_one_partition(request, "Peek messages on a partitioned topic is not allowed")
    admin, topic, subscription = request.admin, request.topic, request.names["subscription"]
    position = request.number("position")
    try:
        return _reply(admin.peek_entry(topic, subscription, position))
    except SubscriptionNotFound:
        admin.create_subscription(topic, subscription, from_earliest=True)
        return _reply(admin.peek_entry(topic, subscription, position))


def by_id(request: RestRequest) -> Binary:
    check_persistent(request)
    check_one_partition(request, "GetMessageById is not allowed on partitioned-topic")
    found = request.admin.stored_entry(request.topic, request.number("ledger"), request.number("entry"))
    if found is None:
        raise RestError(404, "Message id not found")
    return _reply(found)


def examine(request: RestRequest) -> Binary:
    """The entry at a position, counted from the topic's beginning or its end."""
    check_persistent(request, "Examine messages on a non-persistent topic is not allowed")
    check_one_partition(
        request,
        "Examine messages on a partitioned topic is not allowed, please try examine message on specific topic "
        "partition",
    )
    origin = request.query.get("initialPosition", "latest")
    position = request.query.get("messagePosition", "1")
    if not position.removeprefix("-").isdecimal():
        raise RestError(400, f"messagePosition is {position!r:.60}, expected a number")
    # Every other origin is the end, as in Pulsar.
    found = request.admin.examine_entry(
        request.topic, "earliest" if origin == "earliest" else "latest", int(position[:20])
    )
    if found is None:
        raise RestError(412, "Could not examine messages due to the total message is zero")
    return _reply(found)


def id_at(request: RestRequest) -> dict[str, int]:
    """The id of the first message published at or after a time."""
    check_persistent(request, "Get message ID by timestamp on a non-persistent topic is not allowed")
    check_one_partition(
        request,
        "Get message ID by timestamp on a partitioned topic is not allowed, please try do it on specific topic "
        "partition",
    )
    return _id(request.admin.message_id_at(request.topic, request.number("timestamp")))


def last_id(request: RestRequest) -> dict[str, int]:
    check_persistent(request, "GetLastMessageId on a non-persistent topic is not allowed")
    check_one_partition(request, f"Topic {request.topic} not found", 404)
    return _id(request.admin.last_message_id(request.topic))


def backlog_size(request: RestRequest) -> int:
    """The approximate bytes behind a message id."""
    check_persistent(request)
    check_one_partition(request, "calculate backlog size is not allowed for partitioned-topic")
    return request.admin.backlog_size(request.topic, place_of(request.json()))


def analyze(request: RestRequest) -> dict[str, Any]:
    """The entries and messages of a backlog, from a position in the body on. There are no filters of entries, so all
    are accepted."""
    check_persistent(request)
    check_one_partition(
        request, "Analyze backlog on a partitioned topic is not allowed, please try do it on specific topic partition"
    )
    body = request.json()
    start = None if body is None else place_of(body)
    found = request.admin.analyze_backlog(request.topic, request.names["subscription"], start=start)
    return {
        "entries": found.entries,
        "messages": found.messages,
        "filterAcceptedEntries": found.entries,
        "filterRejectedEntries": 0,
        "filterRescheduledEntries": 0,
        "filterAcceptedMessages": found.messages,
        "filterRejectedMessages": 0,
        "filterRescheduledMessages": 0,
        "aborted": not found.complete,
        "firstMessageId": None if found.first is None else str(EntryPosition.of(found.first)),
        "lastMessageId": None if found.last is None else str(EntryPosition.of(found.last)),
    }


def _id(found: NativeMessageId) -> dict[str, int]:
    return {
        "ledgerId": found.ledger_id(),
        "entryId": found.entry_id(),
        "partitionIndex": found.partition(),
        "batchIndex": found.batch_index(),
        "batchSize": found.batch_size(),
    }


def _reply(entry: StoredEntry | None) -> Binary:
    """The payload, decompressed unless it is encrypted or one chunk of several. Source: PersistentTopicsBase
    .generateResponseWithEntry, 4.0.7. Raises RestError: there is no entry."""
    if entry is None:
        raise RestError(404, "Message not found")
    metadata, payload = decoded_entry(entry.record)
    headers = [
        ("X-Pulsar-Message-ID", str(EntryPosition.of(entry.message_id))),
        *metadata_headers(metadata, len(payload)),
        ("X-Pulsar-txn-aborted", flag(entry.transaction is EntryTransaction.ABORTED)),
        ("X-Pulsar-txn-uncommitted", flag(entry.transaction is EntryTransaction.OPEN)),
    ]
    if metadata.compression and not metadata.encryption and metadata.chunks is None:
        payload = decompress(payload, CompressionInfo(Codec(metadata.compression), metadata.uncompressed_bytes or 0))
    return Binary(payload, tuple(headers))
