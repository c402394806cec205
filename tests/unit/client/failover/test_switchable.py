"""Facades that move with a tenant leave nothing that their parts would have to answer for them."""

from __future__ import annotations

import inspect

import pytest

from pulsar_on_kafka.client.consumer.consumer import Consumer
from pulsar_on_kafka.client.failover.switchable_consumer import MovingConsumer
from pulsar_on_kafka.client.failover.switchable_reader import MovingReader
from pulsar_on_kafka.client.reader.reader import Reader

OF_THE_INNER_ONE = {
    "close",  # it is a leave that may be called once
    # whoever owns the inner producer or consumer calls it there: its client, or a consumer of several topics
    "grow", "stats_line", "stats_lines", "endpoint", "endpoints", "layouts", "stop_receiving",
}  # fmt: skip


@pytest.mark.parametrize(("moving", "plain"), [(MovingConsumer, Consumer), (MovingReader, Reader)])
def test_every_public_method_is_its_own(moving: type, plain: type) -> None:
    public = {name: method for name, method in inspect.getmembers(plain) if not name.startswith("_")}
    inherited = {name for name, method in public.items() if getattr(moving, name) is method}
    assert inherited - OF_THE_INNER_ONE == set()
