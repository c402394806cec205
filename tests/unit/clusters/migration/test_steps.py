"""The steps of a migration: the whole table, and workers that are killed and meet one another."""

from __future__ import annotations

import itertools
import random

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Refused
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.migration_progress import (
    MIGRATION_KEYS,
    OVER,
    TRANSITIONS,
    Event,
    Migrations,
    after,
    begun,
)
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.clusters.tenant_records import (
    MigrationRecord,
    MigrationStep,
    decode_migration,
    encode_migration,
)
from pulsar_on_kafka_mapping.state.state_topics import TENANTS
from tests.memory_log import MemoryStateLog
from tests.seeds import for_each_seed

LATER = Deadline.after(10_000)


@pytest.mark.parametrize(("step", "event"), list(itertools.product(MigrationStep, Event)))
def test_every_event_in_every_step(step: MigrationStep, event: Event) -> None:
    record = MigrationRecord("acme", "west", "east", step, 7, "no broker")
    if (step, event) not in TRANSITIONS:
        with pytest.raises(Refused, match=f"is {step.value}: cannot {event.value}"):
            after(record, event)
        return
    found = after(record, event)
    assert (found.step, found.problem) == (TRANSITIONS[step, event], "")
    assert decode_migration(encode_migration(found)) == found


def test_every_migration_can_end_in_both_ways_until_it_is_cleaned() -> None:
    def reachable(start: MigrationStep) -> set[MigrationStep]:
        found = {start}
        while more := {to for (step, _), to in TRANSITIONS.items() if step in found} - found:
            found |= more
        return found

    for step in MigrationStep:
        ends = reachable(step) & OVER
        if step in OVER:
            assert ends == {step}
        elif step is MigrationStep.CLEANING:
            assert ends == {MigrationStep.DONE}
        elif step is MigrationStep.ROLLING_BACK:
            assert ends == {MigrationStep.ROLLED_BACK}
        else:
            assert ends == OVER


def test_one_migration_of_a_tenant_at_a_time() -> None:
    first = begun(None, "acme", "west", "east", 5)
    assert begun(first, "acme", "west", "east", 9) is first
    with pytest.raises(Refused, match="from west to east now"):
        begun(first, "acme", "west", "north", 9)
    with pytest.raises(Refused, match="on cluster west already"):
        begun(None, "acme", "west", "west", 9)
    done = MigrationRecord("acme", "west", "east", MigrationStep.DONE, 5)
    assert begun(done, "acme", "east", "west", 9) == MigrationRecord("acme", "east", "west", MigrationStep.METADATA, 9)


@for_each_seed(range(300))
def test_workers_that_die_and_meet(seed: int) -> None:
    """Each does its step (again), and only then has it on record; whoever read an older step is refused. The truth: a
    step's work was done before anybody is in a later one, and the record never leaves the table."""
    draw = random.Random(seed)
    log = MemoryStateLog()
    workers = [Migrations(Entities(log, TENANTS, MIGRATION_KEYS, SystemClock()), SystemClock()) for _ in range(3)]
    held = [worker.begin("acme", "west", "east", LATER) for worker in workers]
    worked: set[tuple[MigrationStep, Event]] = set()
    for _ in range(60):
        number = draw.randrange(3)
        if draw.random() < 0.3:  # it is killed, and the next one reads the record
            held[number] = workers[number].require("acme", LATER)
        before = workers[number].require("acme", LATER)
        legal = [event for (step, event) in TRANSITIONS if step is held[number].step]
        if not legal:
            break
        event = draw.choice(legal)
        worked.add((held[number].step, event))
        if draw.random() < 0.2:
            workers[number].note(held[number], "killed", LATER)
            continue
        try:
            held[number] = workers[number].advance(held[number], event, LATER)
        except Refused:
            assert before.step is not held[number].step
            assert workers[number].require("acme", LATER).step is before.step
            held[number] = before
        else:
            now = workers[number].require("acme", LATER)
            assert now.step is held[number].step
            assert now.step is before.step or any(
                to is now.step and step is before.step and (step, how) in worked
                for (step, how), to in TRANSITIONS.items()
            )


@pytest.mark.parametrize("value", [b"", b"[]", b'{"v":2}', b'{"v":1,"tenant":"a"}',
    b'{"v":1,"tenant":"a","source":"b","target":"c","step":"LATER","started_ms":1}',
    b'{"v":1,"tenant":"a","source":"b","target":7,"step":"READY","started_ms":1}'])  # fmt: skip
def test_a_record_that_says_something_else_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_migration(value)
