"""Received messages are outside the garbage collector's sight: what they keep of the official class, and that a closed
inbox leaves no cycle through them."""

from __future__ import annotations

import copy
import gc
import pickle
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pulsar
import pytest

import pulsar_on_kafka
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchTopic
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    BatchEntry,
    Delivery,
    Endpoint,
    EntryDelivery,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka.client.values.message import BatchedMessage, ChunkedMessage, ReceivedMessage
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout

RECORD = cast("KafkaRecord", object())


def an_inbox() -> Endpoint:
    return Endpoint("joe", 4, delivery_type=ReceivedMessage)


def partition_of(inbox: Endpoint) -> PartitionConsumer:
    return inbox.feed(PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1)))


def message_of(inbox: Endpoint) -> ReceivedMessage:
    return ReceivedMessage(RECORD, partition_of(inbox), 7, 0)


ALL_KINDS: list[Callable[[PartitionConsumer], Delivery]] = [
    lambda partition: Delivery(RECORD, partition, 7, 0),
    lambda partition: EntryDelivery(RECORD, partition, 7, 0, 1, None),
    lambda partition: ReceivedMessage(RECORD, partition, 7, 0),
    lambda partition: ReceivedMessage.in_batch(RECORD, partition, 7, 0, 3, BatchEntry(cast("Any", None), 5)),
    lambda partition: ReceivedMessage.in_chunks(RECORD, partition, 7, 0),
]


@pytest.mark.parametrize("make", ALL_KINDS)
def test_the_collector_visits_no_delivery(make: Callable[[PartitionConsumer], Delivery]) -> None:
    found = make(partition_of(an_inbox()))
    assert not gc.is_tracked(found)
    assert (found.record, found.offset, found.redeliveries) == (RECORD, 7, 0)
    assert found in {found}
    assert found != make(found.feed)


def test_received_messages_are_messages() -> None:
    for kind in (ReceivedMessage, BatchedMessage, ChunkedMessage):
        assert issubclass(kind, pulsar_on_kafka.Message)


def test_equality_copies_and_pickles_are_those_of_the_official_class() -> None:
    ours, theirs = message_of(an_inbox()), pulsar.Message()
    for message in (ours, theirs):
        twin: Any = copy.copy(message)
        assert message == message  # by identity
        assert twin != message
        assert len({message, twin}) == 2
    with pytest.raises(TypeError):
        pickle.dumps(ours)
    with pytest.raises(TypeError):
        ours < ours  # type: ignore[operator]  # noqa: B015
    assert repr(ours) == f"<Message persistent://public/default/t {ours.message_id()}>"


@pytest.mark.parametrize("sdk", [pulsar, pulsar_on_kafka])
def test_an_application_writes_messages_of_its_own(sdk: Any) -> None:
    class Written(sdk.Message):
        """A message for the tests of an application."""

        def __init__(self, payload: bytes) -> None:
            self.payload_of_test = payload

        def data(self) -> bytes:
            return self.payload_of_test

    written = Written(b"x")
    assert isinstance(written, sdk.Message)
    assert written.data() == b"x"
    written.note = "y"
    assert weakref.ref(written)() is written


class _Application:
    """An object of an application, which the inbox refers to by a callback, and which keeps a message."""

    def __init__(self, inbox: Endpoint) -> None:
        self.message = message_of(inbox)
        inbox.on_available = self.listen
        inbox.wake_member = self.listen

    def listen(self) -> None:
        """Takes no message."""


def _not_taken(inbox: Endpoint) -> object:
    inbox.deliver([message_of(inbox)])
    return inbox


def _listened_to(inbox: Endpoint) -> object:
    return _Application(inbox)


def _failed(inbox: Endpoint) -> object:
    """The failure's traceback refers to this frame, which has a message."""
    message = message_of(inbox)
    inbox.fail(NoSuchTopic("t is gone"))
    try:
        inbox.take(Deadline.after(5))
    except NoSuchTopic:
        traceback.format_exc()
    return message.feed


def _delivered_after_close(inbox: Endpoint) -> object:
    inbox.close()
    inbox.deliver([message_of(inbox)])
    return inbox


def _restored_after_close(inbox: Endpoint) -> object:
    inbox.close()
    inbox.queue = deque()  # by `discard`, in another thread
    inbox.restore([message_of(inbox)])
    return inbox


def _failed_after_close(inbox: Endpoint) -> object:
    inbox.close()
    message = message_of(inbox)
    try:
        raise NoSuchTopic("t is gone")
    except NoSuchTopic as failure:
        inbox.fail(failure)
    return message.feed


def _discarded_after_close(inbox: Endpoint) -> object:
    inbox.deliver([message_of(inbox)])
    inbox.close()
    inbox.discard(None)
    inbox.deliver([message_of(inbox)])
    return inbox


@pytest.mark.parametrize(
    "use",
    [
        _not_taken,
        _listened_to,
        _failed,
        _failed_after_close,
        _delivered_after_close,
        _restored_after_close,
        _discarded_after_close,
    ],
)
def test_a_closed_inbox_is_freed(use: Callable[[Endpoint], object]) -> None:
    inbox = an_inbox()
    used = use(inbox)
    seen = weakref.ref(inbox)
    if not inbox.closed:
        inbox.close()
    del inbox, used
    gc.collect()
    assert seen() is None
