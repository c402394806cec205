"""A producer that waits for being the only one."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.mapping.wire.commands import Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique

pytestmark = pytest.mark.kafka

EXCLUSIVE, WAIT_FOR_EXCLUSIVE = 1, 2


def test_it_is_told_that_it_waits_and_let_in_when_the_other_one_leaves(wire: Wire, unique: Unique) -> None:
    topic = unique()
    wire.connect()
    first = wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1, producer_access_mode=EXCLUSIVE)
    assert first.producer_ready
    for number in (2, 3):
        waiting = {"producer_id": number, "request_id": number, "producer_access_mode": WAIT_FOR_EXCLUSIVE}
        said = wire.ask(Type.PRODUCER, topic=topic, **waiting)
        assert (said.request_id, said.producer_ready) == (number, False)
    wire.say(Type.CLOSE_PRODUCER, producer_id=3, request_id=4)
    assert wire.hear()[1].request_id == 4
    wire.say(Type.CLOSE_PRODUCER, producer_id=1, request_id=5)
    heard = [wire.hear() for _ in range(2)]
    assert sorted((said.request_id, kind) for kind, said in heard) == [(2, Type.PRODUCER_SUCCESS), (5, Type.SUCCESS)]
    ready = next(said for kind, said in heard if kind is Type.PRODUCER_SUCCESS)
    assert ready.producer_ready
    wire.send(2, 0, b"mine")
    assert wire.hear()[0] is Type.SEND_RECEIPT
