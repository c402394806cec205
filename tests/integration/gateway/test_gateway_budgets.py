"""What one client can make a gateway hold or do is bounded, and another client beside it is served meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import cramjam
import psutil
import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.handlers.consumer_opening import MAX_HASH_RANGES
from pulsar_on_kafka.gateway.handlers.wire_producer import MAX_MESSAGES_IN_BATCH
from pulsar_on_kafka.gateway.protocol.frame_writer import CONGESTED_BYTES
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.ack_sets import words_of
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, command
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata
from pulsar_on_kafka_mapping.wire.native_messages import MAX_TAKEN_APART
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

MAX_PING_S: Final = 1.0
MIB: Final = 1024 * 1024


@pytest.fixture
def gateway(admin: AdminClient, unique: Unique) -> Iterator[Gateway]:
    made = Gateway(admin.node, GatewaySettings(port=0, fleet=unique()))
    yield made
    made.close(Deadline.after(60))


@pytest.fixture
def opened(gateway: Gateway) -> Iterator[Callable[[], Wire]]:
    made: list[Wire] = []

    def one() -> Wire:
        made.append(Wire(gateway))
        assert made[-1].connect()[0] is Type.CONNECTED
        return made[-1]

    yield one
    for each in made:
        each.close()


@contextmanager
def victim(gateway: Gateway) -> Iterator[None]:
    """A connection whose PINGs are answered in time until the block's end, and once more. On a busy machine threads are
    late, too: ten times as late as the latest of this one a PONG may be besides."""
    slowest, late, ended, pings = [0.0], [0.0], threading.Event(), [0]

    def ping() -> None:
        with Wire(gateway) as wire:
            wire.connect()
            while not ended.is_set() or not pings[0]:
                begun_s = time.monotonic()
                wire.say(Type.PING)
                while wire.hear()[0] is not Type.PONG:
                    pass
                slowest[0] = max(slowest[0], time.monotonic() - begun_s)
                pings[0] += 1
                begun_s = time.monotonic()
                if not ended.wait(0.02):
                    late[0] = max(late[0], time.monotonic() - begun_s - 0.02)

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        until(lambda: pings[0], "the first PONG")
        yield
    finally:
        ended.set()
        thread.join()
    assert slowest[0] < MAX_PING_S + 10 * late[0], f"of {pings[0]} PINGs one took {slowest[0]:.1f} s"


def large_schema() -> dict[str, Any]:
    """About 400 KiB."""
    fields = ",".join(f'{{"name": "field_{n}", "type": "string", "doc": "{"d" * 60}"}}' for n in range(4000))
    data = f'{{"type": "record", "name": "Large", "fields": [{fields}]}}'.encode()
    return {"name": "large", "schema_data": data, "type": 4, "properties": []}


def test_replies_that_a_client_does_not_read_are_bounded(
    gateway: Gateway, opened: Callable[[], Wire], unique: Unique
) -> None:
    """990 requests of 42 bytes each, whose replies have 400 MiB together."""
    topic, wire = unique(), opened()
    schema = large_schema()
    said = wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1, schema=schema)
    assert said.HasField("producer_name"), said
    process = psutil.Process()
    begun = process.memory_info().rss
    with victim(gateway):
        wire.write(b"".join(frame(command(Type.GET_SCHEMA, request_id=n, topic=topic)) for n in range(990)))
        connection = next(each for each in gateway.connections.all() if len(each.producers))
        until(lambda: connection.writer.congested, "the client to be seen not to read")
        transport: Any = connection.transport
        until(lambda: transport.get_write_buffer_size() > CONGESTED_BYTES, "replies to wait")
        until(lambda: not connection.requests.working, "the requests that have begun to be done")
        assert transport.get_write_buffer_size() < 2 * CONGESTED_BYTES + 8 * len(schema["schema_data"])
        assert process.memory_info().rss - begun < 100 * MIB
        heard = {wire.hear()[1].request_id for _ in range(990)}
        assert heard == set(range(990)), "each is answered once the client reads"


def test_one_topic_s_consumers_hold_up_no_other_topic(
    gateway: Gateway, opened: Callable[[], Wire], unique: Unique
) -> None:
    """Consumers of one subscription join one after the other; a producer of another topic does not wait for them."""
    busy, quiet, other = unique(), unique(), opened()
    wires = [opened() for _ in range(10)]
    with victim(gateway):
        for wire in wires:
            for number in range(20):
                wire.say(Type.SUBSCRIBE, topic=busy, subscription="s", subType=1, consumer_id=number, request_id=number)
        assert other.ask(Type.PRODUCER, topic=quiet, producer_id=1, request_id=1).HasField("producer_name")
        connections = gateway.connections.all()
        assert sum(len(each.consumers) for each in connections) == 200
        ready = sum(len(each.consumers.handles.items()) for each in connections)
        assert ready < 200, "the producer waited for all consumers"
        for wire in wires:
            assert {wire.hear()[0] for _ in range(20)} == {Type.SUCCESS}
            wire.close()
        assert other.ask(Type.PRODUCER, topic=unique(), producer_id=2, request_id=2).HasField("producer_name")


EMPTY: Final = b"\0\0\0\2\x18\0"
"""A message without payload, as it stands in a batch."""


def send_batch(wire: Wire, messages: int, sequence_id: int = 0) -> None:
    """A batch of empty messages, which takes some bytes for thousands of them."""
    plain = EMPTY * messages
    metadata = PulsarMetadata(
        producer_name="wire",
        sequence_id=sequence_id,
        publish_time_ms=time.time_ns() // 1_000_000,
        messages=messages,
        compression=3,
        uncompressed_bytes=len(plain),
    )
    wire.send_as(metadata, 1, bytes(cramjam.zstd.compress(plain)), num_messages=messages)


def test_a_batch_of_absurdly_many_messages_is_refused(
    gateway: Gateway, opened: Callable[[], Wire], unique: Unique
) -> None:
    wire = opened()
    wire.ask(Type.PRODUCER, topic=unique(), producer_id=1, request_id=1)
    with victim(gateway):
        send_batch(wire, 870_000)
        kind, said = wire.hear()
        assert (kind, said.error) == (Type.SEND_ERROR, ServerError.NOT_ALLOWED)
        assert f"870000 messages, expected up to {MAX_MESSAGES_IN_BATCH}" in said.message
        send_batch(wire, 10, 1)
        assert wire.hear()[0] is Type.SEND_RECEIPT


@pytest.mark.long
def test_batches_that_become_records_are_taken_in_slices(
    gateway: Gateway, opened: Callable[[], Wire], admin: AdminClient, unique: Unique
) -> None:
    """One read of the socket has many frames of some hundred bytes, each with 2,000 messages."""
    topic, wire = unique(), opened()
    admin.create_topic(topic)
    admin.set_policy(topic, "entry_format", "native")
    wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1)
    with victim(gateway):
        for number in range(20):
            send_batch(wire, MAX_TAKEN_APART, number * MAX_TAKEN_APART)
        assert {wire.hear()[0] for _ in range(20)} == {Type.SEND_RECEIPT}


def test_acknowledgements_of_large_batches_are_kept_as_bits(
    gateway: Gateway, opened: Callable[[], Wire], unique: Unique
) -> None:
    topic, wire, size = unique(), opened(), MAX_MESSAGES_IN_BATCH
    wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1)
    send_batch(wire, size)
    stored = wire.hear()[1].message_id
    wire.ask(Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=1, request_id=2, initialPosition=1)
    wire.say(Type.FLOW, consumer_id=1, messagePermits=10)
    assert wire.hear()[0] is Type.MESSAGE
    begun = psutil.Process().memory_info().rss
    with victim(gateway):
        for left in range(60, 0, -1):
            each = {"ledgerId": stored.ledgerId, "entryId": stored.entryId, "batch_size": size}
            each["ack_set"] = words_of((1 << left) - 1, size)
            wire.say(Type.ACK, consumer_id=1, ack_type=0, message_id=[each], request_id=left + 10)
        assert {wire.hear()[0] for _ in range(60)} == {Type.ACK_RESPONSE}
    assert psutil.Process().memory_info().rss - begun < 100 * MIB
    until(lambda: wire.ask(Type.CONSUMER_STATS, consumer_id=1, request_id=5).unackedMessages == 1, "one to be left")


@pytest.mark.long
def test_commands_with_many_ids_are_taken_in_slices(
    gateway: Gateway, opened: Callable[[], Wire], unique: Unique
) -> None:
    topic, wire = unique(), opened()
    wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1)
    wire.send(1, 0, b"one")
    stored = wire.hear()[1].message_id
    wire.ask(Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=1, request_id=2, initialPosition=1)
    wire.say(Type.FLOW, consumer_id=1, messagePermits=10)
    assert wire.hear()[0] is Type.MESSAGE
    ids = [{"ledgerId": stored.ledgerId, "entryId": number % 50_000} for number in range(300_000)]
    acknowledge = frame(command(Type.ACK, consumer_id=1, ack_type=0, message_id=ids, request_id=7))
    redeliver = frame(command(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=ids))
    with victim(gateway):
        wire.write(redeliver + acknowledge)
        while (heard := wire.hear())[0] is not Type.ACK_RESPONSE:
            assert heard[0] is Type.MESSAGE
        assert not heard[1].HasField("error")


def test_more_hash_ranges_than_a_consumer_may_have_are_refused(opened: Callable[[], Wire], unique: Unique) -> None:
    wire, ranges = opened(), [{"start": 65_535, "end": 65_535}] * 300_000
    said = wire.ask(
        Type.SUBSCRIBE,
        topic=unique(),
        subscription="s",
        subType=0,
        consumer_id=1,
        request_id=1,
        durable=False,
        start_message_id={"ledgerId": 2**64 - 1, "entryId": 2**64 - 1},
        keySharedMeta={"keySharedMode": 1, "hashRanges": ranges},
    )
    assert said.error == ServerError.NOT_ALLOWED
    assert f"300000 hash ranges, expected up to {MAX_HASH_RANGES}" in said.message
