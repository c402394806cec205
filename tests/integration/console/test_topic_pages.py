"""Pages of topics, messages and schemas, of a real broker."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import Integer, JsonSchema, Record, String
from tests.consoles import Console, text_of
from tests.steps import EARLIEST, SHARED, Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


class Order(Record):
    number = Integer()
    item = String()


class LaterOrder(Record):
    number = Integer()
    item = String()
    gift = String()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def offsets(page: str) -> list[int]:
    return [int(each) for each in re.findall(r'<tr data-key="[^"]*"><th scope="row"><a [^>]*>(\d+)</a>', page)]


def test_from_the_tree_to_a_topic(client: pulsar.Client, admin: AdminClient, console: Console, unique: Unique) -> None:
    topic = unique("orders")
    producer = client.create_producer(topic, producer_name=f"{topic}-shop", schema=JsonSchema(Order))
    client.subscribe(topic, "billing", SHARED, initial_position=EARLIEST)
    for number in range(3):
        producer.send(Order(number=number, item="kettle"))
    admin.set_policy(topic, "retention_time_in_minutes", 90)
    until(lambda: [each.sent for each in admin.topic_stats(topic).publishers] == [3], "the report of the producer")
    until(lambda: _is_gathered(console, full(topic)), "the overview to have the topic")
    tree = console.text("/topics", **{"in": "public/default", "q": topic})
    assert re.search(rf"{topic} 1 3 \S+ \S+ 1 1 3 JSON version 0", tree), tree
    told = console.text("/topic", topic=topic)
    assert f"{topic}-shop Shared 3 " in told
    assert "billing Shared 3" in told
    assert re.search(r"Messages kept 3 Size \d+ B ", told)
    assert "JSON, version 0; compatibility FULL" in told
    assert "retention_time_in_minutes 90" in told
    assert "topic persistent://public/default/nowhere does not exist" in console.text("/topic", topic="nowhere")


def _is_gathered(console: Console, topic: str) -> bool:
    seen = console.site.look()
    return any((row.topic, row.backlog) == (topic, 3) for row in seen.rows)


def test_messages_by_offset_time_key_and_text_with_their_state(
    client: pulsar.Client, console: Console, unique: Unique
) -> None:
    topic = unique("orders")
    consumer = client.subscribe(topic, "billing", SHARED, initial_position=EARLIEST)
    producer = client.create_producer(topic, schema=JsonSchema(Order))
    for number in range(60):
        if number == 40:
            second_ms = time.time_ns() // 1_000_000
        producer.send(
            Order(number=number, item=f"item {number}"), partition_key=f"k{number % 7}",
            properties={"parity": "odd" if number % 2 else "even"},
        )  # fmt: skip
    producer.send(Order(number=60, item="later"), deliver_after=timedelta(hours=1))
    for _ in range(10):
        consumer.acknowledge(consumer.receive(60_000))
    consumer.flush()
    where = {"topic": topic}
    newest = console.get("/messages", **where)
    assert offsets(newest) == [*range(60, 10, -1)]
    assert "This is the end of the topic." in newest
    assert offsets(console.get("/messages", **where, **{"from": "offset", "at": 57})) == [57, 58, 59, 60]
    assert offsets(console.get("/messages", **where, **{"from": "time", "at": second_ms}))[0] == 40
    first = console.get("/messages", **where, **{"from": "earliest"})
    assert offsets(first) == [*range(50)]
    (behind,) = re.findall(r'<a rel="next" href="([^"]+)">later', first)
    assert offsets(_page(console, behind)) == [*range(50, 61)]
    by_key = {"from": "earliest", "key": "k3"}
    assert offsets(console.get("/messages", **where, **by_key)) == [*range(3, 60, 7)]
    assert offsets(console.get("/messages", **where, **by_key, property="parity=odd")) == [3, 17, 31, 45, 59]
    assert offsets(console.get("/messages", **where, text="ITEM 3")) == [*range(39, 29, -1), 3]
    states = console.text("/messages", **where, **{"from": "earliest"}, name="billing")
    assert len(re.findall(r"\backnowledged\b", states)) == 10
    assert len(re.findall(r"\bwaiting\b", states)) == 40
    assert "delayed until 20" in console.text("/messages", **where, name="billing")
    one = console.text("/message", topic=topic, offset=4)
    assert '"number": 4' in one
    assert "Key k4" in one
    assert "parity even" in one
    assert "State" not in one
    assert "The log of partition 0 has 0 to 60." in console.text("/message", topic=topic, offset=61)
    assert "the offset is 'x', expected a whole number from 0" in console.text(
        "/messages", **where, **{"from": "offset", "at": "x"}
    )


def _page(console: Console, address: str) -> str:
    found = urlsplit(unescape(address))
    return console.get(found.path, **dict(parse_qsl(found.query)))


def test_partitions_are_read_together_or_alone(
    client: pulsar.Client, admin: AdminClient, console: Console, unique: Unique
) -> None:
    topic = unique("orders")
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(12):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number}")
    producer.flush()
    found = console.text("/messages", topic=topic, **{"from": "earliest"})
    assert "12 messages read" in found
    each = [re.findall(r"(\d+) messages? read", console.text("/messages", topic=topic, partition=p)) for p in range(3)]
    assert sum(int(number) for (number,) in each) == 12
    assert "has no partition 3: it has 3" in console.text("/messages", topic=topic, partition=3)


def test_versions_of_a_schema_their_difference_and_deleted_ones(
    client: pulsar.Client, admin: AdminClient, console: Console, unique: Unique
) -> None:
    topic, other = unique("orders"), unique("other")
    admin.create_topic(topic)
    admin.create_topic(other)
    admin.set_schema_compatibility_strategy(topic, "ALWAYS_COMPATIBLE")
    for schema in (JsonSchema(Order), JsonSchema(LaterOrder)):
        admin.create_schema(topic, schema._schema_info)
    admin.delete_schema(topic)
    admin.create_schema(topic, JsonSchema(Order)._schema_info)
    page = console.get("/schemas", topic=topic)
    text = text_of(page)
    assert "Compatibility: ALWAYS_COMPATIBLE." in text
    deleted = r"deletion of all versions before it 1 JSON .* deleted 0 JSON .* deleted"
    assert re.search(rf"3 JSON \S+ \S+ \S+ live 2 \S+ \S+ \S+ {deleted}", text), text
    assert re.search(r'<span class="removed">-.*&#34;gift&#34;', page)
    assert "pok schemas diff 1 3" in text
    same = console.text("/schemas", topic=topic, version=3, **{"with": 0})
    assert "The two are the same." in same
    assert "gift" not in same
    assert [each.number for each in admin.schema_history(topic, 2)] == [3, 2]
    assert "The topic has no schema." in console.text("/schemas", topic=other)
    assert "has no schema version 2" in console.text("/schemas", topic=topic, version=2)
