"""Ordered redelivery for official clients: by a policy over REST, with its statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.integration.gateway.rest import Rest, ServingRest
from tests.steps import Unique
from tests.waiting import until

pulsar = pytest.importorskip("pulsar", reason="the official client is not installed")

pytestmark = pytest.mark.kafka

_PATIENCE_MS = 60_000
_SILENCE_MS = 400


@pytest.fixture
def served(serving_rest: ServingRest) -> Iterator[tuple[Rest, str]]:
    with serving_rest() as running:
        yield Rest(running.url()), running.url()


def test_later_messages_of_a_key_wait_for_a_client_of_the_gateway(served: tuple[Rest, str], unique: Unique) -> None:
    rest, url = served
    topic = unique()
    here = f"/admin/v2/persistent/public/default/{topic}"
    rest.does("PUT", here)
    rest.does("POST", f"{here}/orderedRedelivery", json=True)
    assert rest.get(f"{here}/orderedRedelivery") is True
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(url, logger=quiet)) as client:
        consumer = client.subscribe(
            topic, "s", pulsar.ConsumerType.KeyShared, receiver_queue_size=1, negative_ack_redelivery_delay_ms=100,
            initial_position=pulsar.InitialPosition.Earliest,
        )  # fmt: skip
        producer = client.create_producer(topic, batching_enabled=False)
        producer.send(b"a0", partition_key="a")
        first = consumer.receive(_PATIENCE_MS)
        assert first.data() == b"a0"
        consumer.negative_acknowledge(first)

        def waiting() -> int:
            return int(rest.get(f"{here}/stats")["subscriptions"]["s"]["waitingKeys"])

        until(lambda: waiting() == 1, "the client to send its refusal")
        for name in ("a1", "b0"):
            producer.send(name.encode(), partition_key=name[0])
        found = [consumer.receive(_PATIENCE_MS) for _ in range(2)]
        assert sorted(message.data() for message in found) == [b"a0", b"b0"]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(_SILENCE_MS)
        for message in found:
            consumer.acknowledge(message)
        assert consumer.receive(_PATIENCE_MS).data() == b"a1"
        until(lambda: waiting() == 0, "the key to wait no more")
        rest.does("DELETE", f"{here}/orderedRedelivery")
        assert rest.ask("GET", f"{here}/orderedRedelivery").status_code == 204
