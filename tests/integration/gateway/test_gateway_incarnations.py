"""Topics are deleted by force and made anew elsewhere while official clients of a gateway have them open.

They reconnect, and each message has the id under which it is found."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Final

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.server import Gateway
from tests.seeds import first_of
from tests.steps import Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

_PATIENCE_MS: Final = 60_000
_GAPS_S: Final = (0.0, 3.0)


@pytest.fixture
def official(gateway: Gateway) -> Iterator[Any]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(gateway.address(), logger=quiet)) as made:
        yield made


def _place(message_id: Any) -> tuple[int, int]:
    return message_id.ledger_id(), message_id.entry_id()


@pytest.mark.parametrize("gap_s", first_of(1, _GAPS_S))
def test_clients_of_a_gateway_go_on_in_the_topic_made_anew(
    official: Any, admin_elsewhere: AdminClient, unique: Unique, gap_s: float
) -> None:
    topic = unique()
    admin_elsewhere.create_topic(topic)
    producer = official.create_producer(topic, send_timeout_millis=30_000)
    consumer = official.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    sent: dict[tuple[int, int], bytes] = {_place(producer.send(b"old")): b"old"}
    stop = threading.Event()

    def pump() -> None:
        number = 0
        while not stop.wait(0.005):
            number += 1
            payload = b"%d" % number
            try:
                sent[_place(producer.send(payload))] = payload
            except pulsar.PulsarException:
                continue

    thread = threading.Thread(target=pump)
    thread.start()
    try:
        consumer.receive(_PATIENCE_MS)
        admin_elsewhere.delete_topic(topic, force=True)
        threading.Event().wait(gap_s)
        with suppress(sdk.NotAllowedError):  # the clients have made it
            admin_elsewhere.create_topic(topic)
        (former,) = {ledger for ledger, _ in list(sent)[:1]}
        until(lambda: any(ledger != former for ledger, _ in list(sent)), "the producer to send to the topic made anew")
    finally:
        stop.set()
        thread.join()
    now: dict[tuple[int, int], bytes] = {}
    reader = official.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(_PATIENCE_MS)
        now[_place(message.message_id())] = message.data()
    ledgers = {ledger for ledger, _ in now}
    assert {place: payload for place, payload in sent.items() if place[0] in ledgers} == now
    assert former not in ledgers
    while (message := consumer.receive(_PATIENCE_MS)).message_id().ledger_id() not in ledgers:
        assert sent[_place(message.message_id())] == message.data()
    assert now[_place(message.message_id())] == message.data()
