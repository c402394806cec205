"""Records as no producer of ours writes them: what a plain Kafka client, in any language, may put on a topic."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import confluent_kafka

from pulsar_on_kafka_mapping.wire.message_metadata import encode_fields

NINES: Final = b"9" * 5000
NOT_UTF8: Final = b"name-\xff\xfe"
UNREADABLE: Final = b"unreadable"
"""The key of those that consumers report and leave out."""


class Foreign(NamedTuple):
    """A header's name is bytes, because other clients do not ask for UTF-8."""

    headers: Sequence[tuple[bytes, bytes | None]]
    value: bytes | None = b"foreign"
    key: bytes | None = b"k"


_OF_OURS: Final[dict[str, Sequence[bytes | None]]] = {
    "producer": [None, b"", b"x:y:z", b"1:1:\xff", b"1:" + NINES + b":x", NINES + b":1:x", b"-1:-1:x"],
    "schema_version": [None, b"", b"\x00", b"\xff" * 8, NINES],
    "event_time": [None, b"-5", b"abc", NINES, b"1_0", "٣".encode()],
    "deliver_at": [None, b"-1", NINES],
    "publish_time": [None, b"x", NINES],
    "ordering_key": [None, b"", b"\xff"],
    "txn": [None, b"garbage", NINES + b":1", b"9" * 20 + b":" + b"9" * 20],
    "chunk": [None, b"zz", b"0:1:99:u3", b"1:2:5:u2", b"0:" + NINES + b":1:u", b"0:1:" + NINES + b":\xff"],
    "batch": [None, b"x", b"1:5", b"2:5x", b"1:" + b"9" * 20, b"1:" + NINES],
    "compression": [None, b"x", b"LZ4:", b"GZIP:5", b"LZ4:-1", b"ZSTD:" + NINES, b"LZ4:5"],
    "metadata": [None, b"\xff"],
    "highest_sequence": [None, b"x", NINES],
    "replicated_from": [None, b"", b"\xff"],
    "original_id": [None, b"1", b"1:2:3:" + NINES],
    "replicate_to": [None, b"%zz,\xff", b","],
    "encryption": [None, b"\xff\xff\xff"],
    "fence": [None],
    "replicator": [None, b"5:\xff", NINES + b":x"],
    "marker": [None, b"zzz", b"txn_commit", b"snapshot", b"\xff"],
    "p.": [None, b"\xff"],
    "unknown": [None, NINES],
}


_DECISIVE: Final = ("txn", "chunk", "batch", "marker")
"""What these say decides how a record is read: where they cannot be read, it cannot."""


def absurd_records() -> Iterator[Foreign]:
    """Each kind once. None of them is of an open transaction, so that whatever follows can be read at once."""
    yield Foreign([], None, None)
    yield Foreign([], b"", b"")
    yield Foreign([(NOT_UTF8, b"1")])
    yield Foreign(
        [(b"colour", b"red"), (NOT_UTF8, None), (b"", b"\xff"), (b"__pulsar.\xff", b"1"), (b"shape", b"round")]
    )
    yield Foreign([(b"__pulsar.producer", b"1:0:p"), (NOT_UTF8, b"1")])
    yield Foreign([(b"__pulsar.batch", b"1:3"), (NOT_UTF8, b"1")], b"\x06\x02a", UNREADABLE)
    for name, values in _OF_OURS.items():
        for value in values:
            key = UNREADABLE if name in _DECISIVE else b"k"
            yield Foreign([(b"__pulsar." + name.encode(), value)], key=key)
    yield Foreign([(b"__pulsar.replicated_from", b"west"), (b"__pulsar.original_id", b"1:2:3:" + NINES)])
    yield Foreign([(b"__pulsar.producer", b"1:" + NINES + b":x"), (b"__pulsar.fence", b"")])
    yield Foreign([(b"__pulsar.marker", b"replicator"), (b"__pulsar.replicator", NINES + b":x")], None, UNREADABLE)


def odd_batch() -> Foreign:
    """A batch as a client of Pulsar writes it: six messages, of which the third has a property that is no UTF-8. The
    fourth cannot be read; nor can the sixth, whose end is unknown."""
    not_utf8 = encode_fields([(1, encode_fields([(1, b"file"), (2, b"caf\xe9.txt")]))])
    broken = encode_fields([(1, b"\xff")])
    messages = [(b"0", b""), (b"1", b""), (b"2", not_utf8), (b"3", broken), (b"4", b"")]
    value = b"".join(_single(payload, metadata) for payload, metadata in messages)
    return Foreign([(b"__pulsar.batch", b"2:6")], value + b"\x00\x00\x00\x02\x18\x7f")


def _single(payload: bytes, metadata: bytes) -> bytes:
    metadata += encode_fields([(3, len(payload))])
    return struct.pack(">I", len(metadata)) + metadata + payload


def some_absurd_records(chance: Random, count: int) -> list[Foreign]:
    """By chance, for rounds of chance."""
    sealed = b"__pulsar.encryption"  # without keys nobody gets past these, as on Pulsar
    return chance.sample([each for each in absurd_records() if sealed not in dict(each.headers)], count)


class ForeignProducer:
    """librdkafka as other languages see it: confluent-kafka takes only text for a header's name."""

    def __init__(self, bootstrap: str) -> None:
        self._library = _librdkafka()
        failure = ctypes.create_string_buffer(512)
        conf = self._library.rd_kafka_conf_new()
        for name, value in (("bootstrap.servers", bootstrap), ("message.timeout.ms", "60000")):
            self._library.rd_kafka_conf_set(conf, name.encode(), value.encode(), failure, len(failure))
        self._handle = self._library.rd_kafka_new(0, conf, failure, len(failure))
        assert self._handle, failure.value

    def send(self, kafka_topic: str, records: Iterable[Foreign], partition: int = 0) -> int:
        """Write them and wait until they are written; says how many."""
        count = 0
        for record in records:
            headers = self._library.rd_kafka_headers_new(8)
            for name, value in record.headers:
                self._library.rd_kafka_header_add(headers, name, len(name), value, -1 if value is None else len(value))
            failed = self._library.rd_kafka_producev(self._handle, *_arguments(kafka_topic, partition, record, headers))
            assert failed == 0, f"rd_kafka_producev: {failed}"
            count += 1
        assert self._library.rd_kafka_flush(self._handle, 60_000) == 0
        return count

    def close(self) -> None:
        self._library.rd_kafka_destroy(self._handle)


_END, _TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADERS = 0, 1, 3, 4, 5, 7, 10
_COPY: Final = 2


def _arguments(kafka_topic: str, partition: int, record: Foreign, headers: Any) -> list[Any]:
    value, key = record.value, record.key
    return [
        ctypes.c_int(_TOPIC), ctypes.c_char_p(kafka_topic.encode()),
        ctypes.c_int(_PARTITION), ctypes.c_int32(partition),
        ctypes.c_int(_VALUE), ctypes.c_char_p(value), ctypes.c_size_t(len(value or b"")),
        ctypes.c_int(_KEY), ctypes.c_char_p(key), ctypes.c_size_t(len(key or b"")),
        ctypes.c_int(_FLAGS), ctypes.c_int(_COPY),
        ctypes.c_int(_HEADERS), ctypes.c_void_p(headers),
        ctypes.c_int(_END),
    ]  # fmt: skip


def _librdkafka() -> Any:
    """The library that confluent-kafka brought along."""
    package = Path(confluent_kafka.__file__).parent
    where = sorted([*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*")])
    assert where, f"no librdkafka beside {package} ({sys.platform})"
    library = ctypes.CDLL(str(where[0]))
    for name in ("rd_kafka_conf_new", "rd_kafka_headers_new", "rd_kafka_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_headers_new.argtypes = [ctypes.c_size_t]
    library.rd_kafka_conf_set.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
    ]  # fmt: skip
    library.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    library.rd_kafka_header_add.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ssize_t, ctypes.c_char_p, ctypes.c_ssize_t,
    ]  # fmt: skip
    library.rd_kafka_producev.argtypes = [ctypes.c_void_p]
    library.rd_kafka_flush.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
    return library
