"""A cursor's next owner would find this, for those who only look."""

from __future__ import annotations

import random
from collections.abc import Mapping

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog, held_by_open
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_PENDING_ACK as TOPIC
from tests.memory_log import MemoryStateLog
from tests.seeds import for_each_seed
from tests.unit.broker.transactions.pending_ack_owner import (
    COORDINATOR,
    LIFE,
    NAME,
    NEVER,
    CursorOwner,
    batch,
    end,
    txn,
    upto,
    whole,
)


def looked_at(log: MemoryStateLog, cursor: CursorState, low_waters: Mapping[int, int]) -> Holdings:
    view = LogView(log, TOPIC, 0, PendingAckLog, SystemClock())
    return view.query(lambda found: held_by_open(found.cursor(NAME).copy(), low_waters, LIFE, cursor), NEVER)


def test_held_is_what_is_open_and_acknowledged_what_was_committed() -> None:
    log = MemoryStateLog()
    owner = CursorOwner(log, "one", 1).start()
    owner.acknowledge(txn(1), whole(5))
    owner.acknowledge(txn(2), batch(7, 3, 0, 1))
    owner.acknowledge(txn(3), whole(9))
    owner.acknowledge(txn(4), batch(11, 2, 1))
    end(log, txn(1), committed=True)
    end(log, txn(3), committed=False)
    cursor = CursorState(0, 1000)
    held = looked_at(log, cursor, {})
    assert cursor.is_acknowledged(5)
    assert not cursor.is_acknowledged(9)
    assert held.in_batches() == {7, 11}
    assert held.batch(7) is not None
    assert not held.whole_in(0, 100)
    left_over = looked_at(log, CursorState(0, 1000), {COORDINATOR: 2})
    assert left_over.in_batches() == {11}, "what is below the low-water mark was left over"


@for_each_seed(range(200))
def test_it_is_what_an_owner_that_takes_over_finds(seed: int) -> None:
    chance = random.Random(seed)
    log = MemoryStateLog()
    owner = CursorOwner(log, "one", 1).start()
    number = 0
    for _ in range(chance.randrange(1, 25)):
        number += 1
        for _ in range(chance.randrange(1, 4)):
            offset = chance.randrange(30)
            ack = chance.choice([whole(offset), batch(offset, 4, chance.randrange(4)), upto(offset)])
            try:
                owner.acknowledge(txn(number), ack)
            except LayerError:
                continue
        if chance.random() < 0.7:
            end(log, txn(number), committed=chance.random() < 0.6)
    saved = CursorState(0, 1000)
    successor = CursorOwner(log, "two", 2, CursorState(0, 1000)).start()
    successor.acks.settle(successor.cursor)
    held = looked_at(log, saved, {})
    assert saved.next_unacked == successor.cursor.next_unacked
    assert saved.deleted == successor.cursor.deleted
    assert dict(saved.batches.items()) == dict(successor.cursor.batches.items())
    assert held.whole_in(0, 100) == successor.acks.held.whole_in(0, 100)
    assert {o: held.batch(o) for o in range(40)} == {o: successor.acks.held.batch(o) for o in range(40)}
