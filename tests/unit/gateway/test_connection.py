"""A connection hears what clients said to a gateway, and what they might have said."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.wire.commands import Type, command, parsed
from pulsar_on_kafka_mapping.wire.frames import FrameCutter, frame
from tests.pulsar_sessions import CLIENTS, recorded
from tests.served_connection import CONNECT, ServedConnection


@cache
def connections(client: str) -> list[list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for connection, data in recorded(client):
        found.setdefault(connection, []).append(data)
    return list(found.values())


def kind_of(data: bytes) -> Type:
    (each,) = FrameCutter().feed(data)
    return parsed(each.command)[0]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_request_of_a_client_is_answered_once(client: str) -> None:
    for said in connections(client):
        served = ServedConnection()
        asked = Counter[int]()
        for data in said:
            (each,) = FrameCutter().feed(data)
            kind, message = parsed(each.command)
            if kind is Type.SEND:  # nothing can open its producer here
                continue
            served.hear(data)
            if "request_id" in message.DESCRIPTOR.fields_by_name and message.HasField("request_id"):
                asked[message.request_id] += 1
        answered = Counter(
            message.request_id
            for kind, message in served.said
            if "request_id" in message.DESCRIPTOR.fields_by_name and message.request_id < 2**63
        )
        assert answered == asked
        assert served.said[0][0] is Type.CONNECTED
        assert not served.closed


def test_a_message_of_a_producer_that_was_never_opened_ends_the_connection() -> None:
    served = ServedConnection()
    served.hear(CONNECT)
    served.hear(next(data for said in connections("go") for data in said if kind_of(data) is Type.SEND))
    assert served.closed


def test_a_disconnected_gateway_ends_connections_that_have_only_transactions() -> None:
    """Else their requests would fail there until Kafka is back."""
    served = ServedConnection()
    served.hear(CONNECT)
    served.hear(frame(command(Type.TC_CLIENT_CONNECT_REQUEST, request_id=1, tc_id=0)))
    served.follow()
    assert not served.closed
    served.is_disconnected = True
    served.follow()
    assert served.closed


@pytest.mark.parametrize("client", CLIENTS)
def test_whatever_a_changed_bit_says_is_answered_or_ends_the_connection(client: str) -> None:
    for said in connections(client):
        for data in {kind_of(each): each for each in said}.values():
            for at in range(0, len(data) * 8, 3):
                changed = bytearray(data)
                changed[at // 8] ^= 1 << at % 8
                served = ServedConnection()
                served.hear(CONNECT)
                served.hear(bytes(changed))


@given(st.data())
def test_whatever_becomes_of_a_session_is_answered_or_ends_the_connection(data: st.DataObject) -> None:
    said = data.draw(st.sampled_from([each for client in CLIENTS for each in connections(client)]))
    stream = bytearray(b"".join(data.draw(st.permutations(said[:12]))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        if not stream:
            break
    served = ServedConnection()
    if data.draw(st.booleans()):
        served.hear(CONNECT)
    served.hear(bytes(stream))


def test_text_that_is_none_ends_the_connection() -> None:
    served = ServedConnection()
    served.hear(CONNECT)
    asked = command(Type.LOOKUP_TOPIC, topic="abcd", request_id=1).replace(b"abcd", b"ab\xffd")
    served.hear(frame(asked))
    assert served.closed
    assert [kind for kind, _ in served.said] == [Type.CONNECTED]
