"""Limits of unacknowledged messages for official clients, by REST."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.integration.gateway.rest import Rest
from tests.steps import Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

_PATIENCE_MS = 60_000


def test_a_client_gets_no_more_than_the_policies_allow(rest: Rest, unique: Unique) -> None:
    topic = unique()
    here = f"/admin/v2/persistent/public/default/{topic}"
    rest.does("PUT", here)
    for step in ("maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription"):
        rest.refuses(412, "must be 0 or more", "POST", f"{here}/{step}", json=-1)
        rest.does("POST", f"{here}/{step}", json=4)
        assert rest.get(f"{here}/{step}") == 4
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(rest.url, logger=quiet)) as client:
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic)
        for number in range(10):
            producer.send(b"%d" % number)
        first = [consumer.receive(_PATIENCE_MS) for _ in range(4)]

        def blocked() -> tuple[bool, bool]:
            (found,) = rest.get(f"{here}/stats")["subscriptions"].values()
            (it,) = found["consumers"]
            both = found["blockedSubscriptionOnUnackedMsgs"], it["blockedConsumerOnUnackedMsgs"]
            assert both == tuple(each["blockedOnUnackedMsgsSeconds"] >= 0 for each in (found, it))
            return both

        assert blocked() == (True, True)
        with pytest.raises(pulsar.Timeout):
            consumer.receive(200)
        for message in first:
            consumer.acknowledge(message)
        second = [consumer.receive(_PATIENCE_MS) for _ in range(4)]
        assert [message.data() for message in second] == [b"4", b"5", b"6", b"7"]
        for step in ("maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription"):
            rest.does("POST", f"{here}/{step}", json=0)
        assert [consumer.receive(_PATIENCE_MS).data() for _ in range(2)] == [b"8", b"9"]
        until(lambda: blocked() == (False, False), "the block to end")
