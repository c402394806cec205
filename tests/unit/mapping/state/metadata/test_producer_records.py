"""Values of the `producers` state topic: signs of life and the producers that they list."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    MAX_PROPERTIES_BYTES,
    MAX_PUBLISHERS,
    ProducerHeartbeat,
    Publisher,
    decode_producer_heartbeat,
    encode_producer_heartbeat,
    producer_heartbeat,
)


def _publisher(name: str = "p", **properties: str) -> Publisher:
    return Publisher(name, "Shared", 3, 1_700_000_000_000, 10, 1, properties)


def test_a_sign_of_life_is_read_as_it_was_written() -> None:
    sign = ProducerHeartbeat(1_700_000_010_000, "host:1:2", (_publisher(team="ü"), _publisher("q")), 7)
    assert decode_producer_heartbeat(encode_producer_heartbeat(sign)) == sign


def test_a_sign_of_life_of_a_version_that_listed_nobody() -> None:
    assert decode_producer_heartbeat(b'{"v":1,"deadline_ms":5}') == ProducerHeartbeat(5)


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b'{"v":1}', b'{"v":1,"deadline_ms":"5"}', b'{"v":1,"deadline_ms":5,"publishers":[{"x":1}]}',
     b'{"v":1,"deadline_ms":5,"publishers":{}}'],
)  # fmt: skip
def test_what_is_no_sign_of_life(value: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_producer_heartbeat(value)


def test_a_sign_lists_so_many_producers_and_counts_the_others() -> None:
    sign = producer_heartbeat(5, "host:1:2", [_publisher(str(number)) for number in range(MAX_PUBLISHERS + 3)])
    assert (len(sign.publishers), sign.unlisted) == (MAX_PUBLISHERS, 3)


def test_a_sign_lists_so_many_bytes_of_properties() -> None:
    large = "x" * (MAX_PROPERTIES_BYTES - 1)
    sign = producer_heartbeat(5, "host:1:2", [_publisher("a", k=large), _publisher("b", k="v"), _publisher("c")])
    assert ([publisher.producer_name for publisher in sign.publishers], sign.unlisted) == (["a", "c"], 1)
