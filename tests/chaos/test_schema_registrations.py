"""Many processes register schemas at once, and some of them are killed in the middle."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, check_compatibility
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_keys import SchemaKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS
from tests.chaos.schema_worker import SchemaOrders
from tests.registries import avro
from tests.steps import Unique

pytestmark = pytest.mark.kafka

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 180


@dataclass
class Outcome:
    """The words of a process before it ended, or was killed."""

    code: int
    log: str
    told: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, process: subprocess.Popen[str], out: str, log: str) -> Outcome:
        found = cls(process.returncode, log)
        for line in out.splitlines():
            said: dict[str, Any] = json.loads(line)
            if "field" in said:
                found.told.setdefault(said["field"], []).append(said["version"])
            found.counts |= said.get("counts", {})
        return found


@contextmanager
def started(all_orders: Sequence[SchemaOrders]) -> Iterator[list[subprocess.Popen[str]]]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.schema_worker", json.dumps(asdict(orders))],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for orders in all_orders
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def register_at_once(all_orders: Sequence[SchemaOrders]) -> list[Outcome]:
    """Each order by a process of its own, all from the same moment."""
    with started(all_orders) as processes:
        for process in processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            assert json.loads(line) == {"ready": True}
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [Outcome.of(process, *process.communicate(timeout=_PATIENCE_S)) for process in processes]


@pytest.fixture
def orders(admin: AdminClient, bootstrap: str, unique: Unique) -> SchemaOrders:
    """For a topic of this test's own, without schemas yet."""
    topic = str(TopicName.parse(unique()))
    admin.create_topic(topic)
    return SchemaOrders(bootstrap, topic, ())


def field_of(stored: StoredSchema) -> str:
    return str(json.loads(stored.info.schema)["fields"][0]["name"])


def check_lawful(stored: Sequence[StoredSchema], first: int = 0) -> None:
    """Dense versions, each readable, each another schema, and each compatible with the one that it followed."""
    assert [one.version.number for one in stored] == list(range(first, first + len(stored)))
    assert all(one.info == avro(field_of(one)) for one in stored)
    assert len({one.info.schema for one in stored}) == len(stored)
    for old, new in pairwise(stored):
        assert check_compatibility(new.info, [old.info], CompatibilityStrategy.FULL).is_compatible


def test_a_hundred_registrations_of_one_new_schema_by_ten_processes(admin: AdminClient, orders: SchemaOrders) -> None:
    outcomes = register_at_once([replace(orders, fields=("a",) * 10)] * 10)
    assert [outcome.code for outcome in outcomes] == [0] * 10, [outcome.log for outcome in outcomes]
    assert [outcome.told for outcome in outcomes] == [{"a": [0] * 10}] * 10
    assert sum(outcome.counts["registered"] for outcome in outcomes) == 1
    check_lawful(admin.get_all_schemas(orders.topic))
    assert len(admin.list_schema_versions(orders.topic)) == 1


def test_fifty_different_schemas_by_ten_processes(admin: AdminClient, orders: SchemaOrders) -> None:
    names = [f"field_{number}" for number in range(50)]
    outcomes = register_at_once([replace(orders, fields=tuple(names[place::10])) for place in range(10)])
    assert [outcome.code for outcome in outcomes] == [0] * 10, [outcome.log for outcome in outcomes]
    stored = admin.get_all_schemas(orders.topic)
    assert len(stored) == 50
    check_lawful(stored)
    told = {name: versions for outcome in outcomes for name, versions in outcome.told.items()}
    assert told == {field_of(one): [one.version.number] for one in stored}


@pytest.mark.parametrize("cut", ["before", "under way", "after"])
def test_processes_that_are_killed_leave_nothing_half_written(
    admin: AdminClient, orders: SchemaOrders, cut: str
) -> None:
    rng = random.Random(cut)
    names = [f"field_{number}" for number in range(32)]
    given = [replace(orders, fields=tuple(names[place::8])) for place in range(8)]
    doomed = [replace(one, cut=cut, cut_at=rng.randint(1, 6)) for one in given[:4]]
    outcomes = register_at_once([*doomed, *given[4:]])
    assert [outcome.code for outcome in outcomes[:4]] == [-9] * 4, [outcome.log for outcome in outcomes[:4]]
    assert [outcome.code for outcome in outcomes[4:]] == [0] * 4, [outcome.log for outcome in outcomes[4:]]
    stored = admin.get_all_schemas(orders.topic)
    check_lawful(stored)
    place_of = {field_of(one): one.version.number for one in stored}
    for outcome in outcomes:
        for name, versions in outcome.told.items():
            assert versions == [place_of[name]], "a process was told another version than there is"
    for one in given[4:]:
        assert place_of.keys() >= set(one.fields), "a process that lived on did not register all of its schemas"
    assert admin.create_schema(orders.topic, avro("afterwards")) == len(stored)


def test_schemas_that_cannot_be_read_are_deleted_once_counted_and_logged(
    admin: AdminClient, orders: SchemaOrders
) -> None:
    assert admin.create_schema(orders.topic, avro("a")) == 0
    name = TopicName.parse(orders.topic)
    kafka_topic_id = admin.node.topics.kafka_topic_id(name, Deadline.after(20))
    rotten = encode_key(SchemaKey(orders.topic, kafka_topic_id, 2, "ff"))
    admin.node.log.append(SCHEMAS, SCHEMAS.partition_for(orders.topic), rotten, b"rot", Deadline.after(20))
    outcomes = register_at_once([replace(orders, fields=("b",) * 5)] * 4)
    assert [outcome.code for outcome in outcomes] == [0] * 4, [outcome.log for outcome in outcomes]
    assert [outcome.told for outcome in outcomes] == [{"b": [3] * 5}] * 4
    deleted = [outcome.counts["force_deleted"] for outcome in outcomes]
    assert sorted(deleted) == [0, 0, 0, 1]
    loud = [outcome for outcome in outcomes if "ALL ITS SCHEMAS ARE DELETED" in outcome.log]
    assert [outcome.counts["force_deleted"] for outcome in loud] == [1]
    check_lawful(admin.get_all_schemas(orders.topic), first=3)
    assert admin.get_schema_info(orders.topic, 0) == avro("a")
