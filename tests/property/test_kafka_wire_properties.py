"""Responses of brokers: random, cut or changed bytes raise CorruptRecord alone, and allocate no more than they have.
Those of Kafka's own descriptions are read field by field."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.embedded.jar_cache import default_cache_dir
from pulsar_on_kafka.kafka.wire.fields import FieldReader, WireRequest
from pulsar_on_kafka_mapping.errors import CorruptRecord
from tests.kafka_messages import KafkaMessages, leaves
from tests.seeds import examples
from tests.steps import Missing
from tests.wire_requests import REQUESTS

KINDS = [pytest.param(request, id=request.API.name) for request, _ in REQUESTS]
NOT_KEPT = {
    *("Rack", "IsInternal", "ReplicaNodes", "IsrNodes", "OfflineReplicas", "TopicAuthorizedOperations"),
    *("AuthorizedOperations", "SnapshotId", "SupportedFeatures", "FinalizedFeaturesEpoch", "FinalizedFeatures"),
    "ZkMigrationReady",
}
"""Fields of responses that the product reads over."""
TAGGED = ("DivergingEpoch", "CurrentLeader")
"""Tagged fields that it keeps, behind the others."""
NULL_IS_EMPTY = {"AbortedTransactions": (), "Records": b""}
MAX_BYTES_FOR_EACH = 100
"""Memory of Python's objects for each byte of a response, with some to spare: a string of one byte takes 50."""


@pytest.fixture(scope="module")
def messages(missing: Missing) -> KafkaMessages:
    found = sorted(default_cache_dir().glob("kafka-*/libs/kafka-clients-*.jar"))
    if not found:
        missing("kafka", "no jar of Kafka's clients in the cache of embedded brokers")
    return KafkaMessages(found[-1])


def decoded(request: WireRequest[Any], data: bytes) -> Any:
    reader = FieldReader(data, f"{request.API.name}Response")
    response = request.decode_response(reader)
    reader.expect_end()
    return response


def kept(message: Any) -> Any:
    """A message as the product has it."""
    if isinstance(message, list):
        return [kept(each) for each in message]
    if not isinstance(message, dict):
        return message
    names = [name for name in message if name not in NOT_KEPT and name not in TAGGED]
    names += [name for name in TAGGED if name in message]
    return {
        name: NULL_IS_EMPTY[name] if name in NULL_IS_EMPTY and message[name] is None else kept(message[name])
        for name in names
    }


@pytest.mark.kafka
@pytest.mark.parametrize(("request_", "fields"), [pytest.param(*each, id=each[0].API.name) for each in REQUESTS])
def test_kafka_reads_what_a_request_has(
    messages: KafkaMessages, request_: WireRequest[Any], fields: dict[str, Any]
) -> None:
    api = request_.API
    described = messages.of(f"{api.name}Request")
    assert (described["apiKey"], messages.is_flexible(f"{api.name}Request", api.version)) == (api.key, api.is_flexible)
    assert messages.read(f"{api.name}Request", api.version, request_.encode()) == fields


@pytest.mark.kafka
@pytest.mark.parametrize("request_", KINDS)
def test_a_response_of_kafka_is_read_field_by_field(messages: KafkaMessages, request_: WireRequest[Any]) -> None:
    name, version = f"{request_.API.name}Response", request_.API.version

    @settings(max_examples=examples(100))
    @given(messages.strategy(name, version))
    def play(message: dict[str, Any]) -> None:
        data = messages.write(name, version, message)
        if request_.API.name == "ApiVersions" and message["ErrorCode"]:
            assert decoded(request_, data).error_code == message["ErrorCode"]
            return
        assert leaves(decoded(request_, data)) == leaves(kept(message))
        for cut in {0, 1, len(data) // 2, len(data) - 1} - {len(data)}:
            with pytest.raises(CorruptRecord, match=name):
                decoded(request_, data[:cut])

    play()


@pytest.mark.kafka
@pytest.mark.parametrize("request_", KINDS)
def test_a_changed_response_raises_nothing_else(messages: KafkaMessages, request_: WireRequest[Any]) -> None:
    name, version = f"{request_.API.name}Response", request_.API.version

    @settings(max_examples=examples(100))
    @given(messages.strategy(name, version), st.randoms(use_true_random=False))
    def play(message: dict[str, Any], random: Random) -> None:
        data = bytearray(messages.write(name, version, message))
        for _ in range(3):
            data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        with suppress(CorruptRecord):
            decoded(request_, bytes(data))

    play()


@pytest.mark.parametrize("request_", KINDS)
@settings(max_examples=examples(100))
@given(data=st.binary(max_size=300))
def test_random_bytes_raise_nothing_else(request_: WireRequest[Any], data: bytes) -> None:
    with suppress(CorruptRecord):
        decoded(request_, data)


@pytest.mark.parametrize("request_", KINDS)
@pytest.mark.parametrize("fill", [b"\0", b"\1", b"\x7f", b"\xff", b"\0\0\0\1", b"\0\0\xff\xff"])
def test_memory_is_bounded_by_the_bytes(request_: WireRequest[Any], fill: bytes) -> None:
    data = fill * (20_000 // len(fill))
    tracemalloc.start()
    try:
        with suppress(CorruptRecord):
            decoded(request_, data)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES_FOR_EACH * len(data)
    finally:
        tracemalloc.stop()
