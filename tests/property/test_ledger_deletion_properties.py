"""Events that ask for deletion, true and forged, beside a truth that knows every offset."""

from __future__ import annotations

import random

from pulsar_on_kafka.broker.managed_ledger.deletion import DeletionVerdict, PartitionNow, judge
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.trimming import Needs
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState

SIZE = 10
TOPIC = "persistent://public/default/orders"


def _world(rng: random.Random) -> PartitionNow:
    """A partition, of whose list some first ledgers were taken off, whatever is left of their data."""
    layout, partition = LedgerLayout(rng.randrange(1, 9), SIZE), rng.randrange(3)
    end = rng.randrange(60)
    start = rng.randint(0, end)
    open_index = end // SIZE
    first_listed = rng.randint(min(start // SIZE, open_index), open_index)
    listed = []
    for index in range(first_listed, open_index + 1):
        state = LedgerState.OPEN if index == open_index else rng.choice([LedgerState.CLOSED, LedgerState.DELETING])
        record = LedgerRecord(TOPIC, state, index * SIZE, max(index * SIZE, min(end, (index + 1) * SIZE)))
        listed.append(Ledger(layout.ledger_id(partition, index), record))
    if rng.random() < 0.1:
        listed = []
    needs = Needs([rng.randint(start, end)] if rng.random() < 0.6 else [])
    return PartitionNow(LedgerPlace(TOPIC, layout.incarnation, partition), layout, listed, LogRange(start, end), needs)


def test_only_what_nobody_lists_or_needs_is_deleted_whatever_the_event_says() -> None:
    verdicts: dict[DeletionVerdict, int] = dict.fromkeys(DeletionVerdict, 0)
    for seed in range(5000):
        rng = random.Random(seed)
        now = _world(rng)
        ids = [
            LedgerLayout(rng.randrange(1, 9), SIZE).ledger_id(rng.randrange(3), rng.randrange(8)),
            rng.randrange(2**66),
        ]
        ids += [now.layout.ledger_id(now.place.partition, rng.randrange(8))] * 4
        ledger_id = rng.choice(ids)
        found = judge(TOPIC, now.place.partition, ledger_id, now)
        verdicts[found.verdict] += 1
        if found.verdict is not DeletionVerdict.DELETE:
            continue
        assert ledger_id >> 36 == now.place.incarnation, f"seed {seed}: of another life"
        assert ledger_id >> 23 & 8191 == now.place.partition, f"seed {seed}: of another partition"
        assert found.before == ((ledger_id & 0x7FFFFF) + 1) * SIZE, f"seed {seed}"
        assert now.log.start < found.before <= now.log.end, f"seed {seed}"
        assert all(ledger.first >= found.before for ledger in now.listed), f"seed {seed}: listed"
        assert now.listed, f"seed {seed}: without a list"
        assert all(offset >= found.before for offset in now.needs.cursors), f"seed {seed}: needed"
    assert all(count > 100 for count in verdicts.values()), verdicts


def test_every_ledger_that_was_taken_off_the_list_goes_in_the_end() -> None:
    for seed in range(2000):
        now = _world(random.Random(seed))
        if not now.listed:
            continue
        free = now._replace(needs=Needs([now.log.end]))
        for index in range(now.listed[0].ledger_index):
            ledger_id = now.layout.ledger_id(now.place.partition, index)
            found = judge(TOPIC, now.place.partition, ledger_id, free)
            assert found.verdict in (DeletionVerdict.DELETE, DeletionVerdict.DONE), f"seed {seed}: {found}"
            after = free._replace(log=LogRange(max(found.before, now.log.start), now.log.end))
            assert judge(TOPIC, now.place.partition, ledger_id, after).verdict is DeletionVerdict.DONE  # a second event


def test_a_topic_that_is_gone_has_nothing_to_delete() -> None:
    assert judge(TOPIC, 0, LedgerLayout(3, SIZE).ledger_id(0, 0), None).verdict is DeletionVerdict.REFUSE
