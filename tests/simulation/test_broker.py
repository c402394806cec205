"""The simulated broker keeps the order of a connection, and executes twice what a client sent again."""

from __future__ import annotations

import random
from functools import partial

from tests.simulation.broker import SimulatedBroker


def test_any_order_across_connections_and_one_within() -> None:
    orders = set()
    for seed in range(40):
        broker = SimulatedBroker(random.Random(seed))
        executed: list[str] = []
        first, second = broker.connect(), broker.connect()
        for connection, name in ((first, "a1"), (second, "b1"), (first, "a2"), (second, "b2")):
            connection.send(partial(executed.append, name))
        broker.execute_all()
        assert executed.index("a1") < executed.index("a2")
        assert executed.index("b1") < executed.index("b2")
        orders.add(tuple(executed))
    assert len(orders) == 6


def test_what_is_sent_again_is_executed_twice() -> None:
    broker = SimulatedBroker(random.Random(1))
    executed: list[str] = []
    first = broker.connect()
    request = first.send(partial(executed.append, "save 1"))
    second = first.send_again()
    second.call(partial(executed.append, "save 2"))
    broker.execute_all()
    assert request.executed == 2
    assert sorted(executed) == ["save 1", "save 1", "save 2"]


def test_a_call_waits_for_its_own_answer() -> None:
    broker = SimulatedBroker(random.Random(1))
    connection = broker.connect()
    connection.send(lambda: 1)
    assert connection.call(lambda: 2) == 2
    assert not broker.waiting
