"""A coordinator dies between the marker of a commit and the rest; before its successor goes on a record comes late."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus
from tests.integration.transaction_support import PATIENCE_S, buffer_of, data_of
from tests.integration.transactions_by_hand import WrittenByHand
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


def test_all_readers_leave_out_what_came_behind_the_first_marker(
    admin: AdminClient, service_url: str, bootstrap: str, unique: Unique
) -> None:
    topic = f"persistent://public/default/{unique()}"
    admin.create_topic(topic)
    by_hand = WrittenByHand(admin, topic)
    txn = by_hand.begin()
    by_hand.add_partition(txn)
    by_hand.opened(txn, 0)
    by_hand.send(txn, b"in time")
    by_hand.status(txn, TxnStatus.COMMITTING)
    by_hand.marker(txn, committed=True)
    late = by_hand.send(txn, b"late")
    by_hand.send(None, b"behind")
    where = DataPartition(topic, 0, by_hand.topic.layout.incarnation)
    client = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    try:
        client.new_transaction().abort()  # from now on this process serves the coordinators
        until(lambda: not buffer_of(bootstrap, topic).announced_bounds(where), "its OPEN to be removed")
        markers = [seen.offset for seen in data_of(bootstrap, by_hand.topic.kafka_topic) if seen.ended is not None]
        assert markers == [late - 1]
        assert list(buffer_of(bootstrap, topic).snapshot(where).excluded) == [late]
        assert [_read(client, topic, _id(by_hand, start)) for start in (0, late - 1, late)] == [
            [b"in time", b"behind"], [b"behind"], [b"behind"],
        ]  # fmt: skip
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        consumer.seek(_id(by_hand, late))
        assert consumer.receive(int(PATIENCE_S * 1000)).data() == b"behind"
        (checked,) = admin.verify_transaction_buffer(topic)
        assert not checked.differences
    finally:
        client.close()


def _id(by_hand: WrittenByHand, offset: int) -> pulsar.MessageId:
    ledger_id, entry_id = by_hand.topic.layout.position(0, offset)
    return pulsar.MessageId(-1, ledger_id, entry_id, -1)


def _read(client: pulsar.Client, topic: str, start: pulsar.MessageId) -> list[bytes]:
    """What a reader gives that begins there, up to the last message."""
    reader = client.create_reader(topic, start, start_message_id_inclusive=True)
    found: list[bytes] = []
    try:
        while not found or found[-1] != b"behind":
            found.append(reader.read_next(int(PATIENCE_S * 1000)).data())
    finally:
        reader.close()
    return found
