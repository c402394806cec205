"""Records as librdkafka reads them from a real broker, and as record batches are decoded here."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import google_crc32c
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.reading.events import KafkaPartition
from pulsar_on_kafka.kafka.reading.record_batches import decode
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.kafka.wire.cluster_messages import MetadataRequest
from pulsar_on_kafka.kafka.wire.fetch_messages import FetchRequest, PartitionToFetch
from pulsar_on_kafka.kafka.wire.fields import NO_TAGS, FieldReader, Response_co, WireRequest, string
from pulsar_on_kafka.kafka.wire.offset_messages import READ_COMMITTED, READ_UNCOMMITTED
from tests.steps import Unique
from tests.waiting import patience

pytestmark = pytest.mark.kafka

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S: Final = 60.0
Fields = tuple[int, bytes | None, bytes | None, Any, tuple[int, int]]


def fields_of(record: Any) -> Fields:
    return record.offset(), record.key(), record.value(), headers_of(record), record.timestamp()


class Broker:
    """One connection to the broker, for one request at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def request(self, request: WireRequest[Response_co]) -> Response_co:
        api = request.API
        head = api.key.to_bytes(2, "big") + api.version.to_bytes(2, "big") + b"\0\0\0\1" + string("test") + NO_TAGS
        whole = head + request.encode()
        self._connection.sendall(len(whole).to_bytes(4, "big") + whole)
        size = int.from_bytes(self._exactly(4), "big")
        return request.decode_response(FieldReader(self._exactly(size)[5:], api.name))

    def _exactly(self, size: int) -> bytes:
        read = bytearray()
        while len(read) < size:
            part = self._connection.recv(size - len(read))
            assert part
            read += part
        return bytes(read)


@pytest.fixture
def broker(bootstrap: str) -> Iterator[Broker]:
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        yield Broker(connection)


def decoded(broker: Broker, where: KafkaPartition, start: int, end: int, isolation: int) -> list[Fields]:
    (topic,) = broker.request(MetadataRequest((where.topic,))).topics
    position, found, deadline = start, list[Fields](), patience()
    while position < end:
        deadline.check(f"{where} to be read to {end}, now at {position}")
        wanted = ((topic.topic_id, (PartitionToFetch(where.partition, position, 50_000),)),)
        answer = broker.request(FetchRequest(500, 1, 1 << 20, wanted, isolation_level=isolation))
        ((_, (partition,)),) = answer.topics
        assert partition.error_code == 0
        aborted = partition.aborted_transactions
        for each in decode(where, bytes(partition.records), position, aborted, google_crc32c.value):
            found += map(fields_of, each.records)
            position = each.position
    return found


@contextmanager
def consumer(bootstrap: str, where: KafkaPartition, start: int, isolation: str) -> Iterator[Consumer]:
    options = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": isolation}
    reading = Consumer({**options, "enable.partition.eof": False, "auto.offset.reset": "error"})
    try:
        reading.assign([TopicPartition(*where, start)])
        yield reading
    finally:
        reading.close()


def consumed(bootstrap: str, where: KafkaPartition, start: int, count: int, isolation: str) -> list[Fields]:
    found, deadline = list[Fields](), patience()
    with consumer(bootstrap, where, start, isolation) as reading:
        while len(found) < count:
            deadline.check(f"{count} records of {where}, now {len(found)}")
            for record in reading.consume(500, 0.5):
                assert record.error() is None
                found.append(fields_of(record))
    return found


def produce(producer: Producer, where: KafkaPartition, rng: random.Random, count: int) -> None:
    for _ in range(count):
        content = rng.choice([None, b"", b"v" * rng.randrange(200)])
        headers: list[Any] = [(rng.choice(["", "name", "ключ", "x" * 90]), content)]
        value = rng.choice([None, b"", rng.randbytes(20), b"v" * rng.choice([63, 64, 8191, 8192])])
        producer.produce(
            where.topic, value, rng.choice([None, b"", b"k" * rng.choice([1, 63, 64, 9000])]), where.partition,
            headers=headers * rng.choice([0, 1, 2, 70]), timestamp=rng.choice([0, 1, 1_700_000_000_000]),
        )  # fmt: skip
        if rng.random() < 0.05:
            assert producer.flush(PATIENCE_S) == 0


def test_decoded_records_are_those_that_librdkafka_reads(
    bootstrap: str, broker: Broker, admin: AdminClient, unique: Unique
) -> None:
    where, rng = KafkaPartition(unique(), 1), random.Random(14)
    admin.node.admin.create_topic(where.topic, 2, {}, Deadline.after(PATIENCE_S))
    for compression in COMPRESSIONS:
        plain = Producer({"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 5})
        produce(plain, where, rng, 120)
        assert plain.flush(PATIENCE_S) == 0
        options = {"bootstrap.servers": bootstrap, "transactional.id": unique(), "compression.type": compression}
        transactional = Producer(options)
        transactional.init_transactions(PATIENCE_S)
        for committed in (True, False, False, True):
            transactional.begin_transaction()
            produce(transactional, where, rng, 15)
            assert transactional.flush(PATIENCE_S) == 0
            produce(plain, where, rng, 5)
            assert plain.flush(PATIENCE_S) == 0
            (transactional.commit_transaction if committed else transactional.abort_transaction)(PATIENCE_S)
    end = len(COMPRESSIONS) * (120 + 4 * (15 + 5 + 1))
    for start in (0, 100, 300):
        for isolation, name in ((READ_COMMITTED, "read_committed"), (READ_UNCOMMITTED, "read_uncommitted")):
            ours = decoded(broker, where, start, end, isolation)
            assert ours == consumed(bootstrap, where, start, len(ours), name)
    assert len(decoded(broker, where, 0, end, READ_COMMITTED)) == len(COMPRESSIONS) * (120 + 4 * 5 + 2 * 15)
    assert len(decoded(broker, where, 0, end, READ_UNCOMMITTED)) == len(COMPRESSIONS) * (120 + 4 * 20)
