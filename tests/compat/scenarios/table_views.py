"""Table views that follow their topic."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "table view"


@scenario(area=AREA, title="The last value of each key, and what comes later")
def last_values(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    for key, value in (("a", "1"), ("b", "1"), ("a", "2")):
        producer.send(value.encode(), partition_key=key)
    view = run.shared_client.create_table_view(topic)
    run.record("at first", [view.get("a"), view.get("b"), view.get("c"), len(view)])
    producer.send(b"3", partition_key="a")
    producer.send(b"1", partition_key="c")
    run.until(lambda: view.get("c") is not None, "the new key")
    run.record("later", [view.get("a"), view.get("b"), view.get("c"), len(view)])
    view.close()


@scenario(area=AREA, title="An empty value removes its key")
def removal(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    producer.send(b"1", partition_key="a")
    producer.send(b"1", partition_key="b")
    view = run.shared_client.create_table_view(topic)
    run.record("at first", len(view))
    producer.send(b"", partition_key="a")
    run.until(lambda: len(view) == 1, "one key")
    run.record("later", [view.get("a"), view.get("b")])


@scenario(area=AREA, title="for_each and for_each_and_listen")
def for_each(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    for key in ("a", "b"):
        producer.send(key.encode(), partition_key=key)
    view = run.shared_client.create_table_view(topic)
    once: dict[str, Any] = {}
    view.for_each(lambda key, value: once.update({key: value}))
    run.record("once", once)
    heard: dict[str, Any] = {}
    view.for_each_and_listen(lambda key, value: heard.update({key: value}))
    producer.send(b"new", partition_key="c")
    run.until(lambda: "c" in heard, "the new key")
    run.record("heard", heard)


@scenario(area=AREA, title="With a schema, and of a partitioned topic")
def with_schema(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    text = run.sdk.schema.StringSchema()
    producer = run.producer(topic, schema=text)
    for number in range(6):
        producer.send(f"v{number}", partition_key=f"k{number}")
    view = run.shared_client.create_table_view(topic, schema=text)
    run.until(lambda: len(view) == 6, "6 keys")
    run.record("values", [view.get(f"k{number}") for number in range(6)])


@scenario(area=AREA, title="Every update is heard, in order for each key")
def updates(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    producer.send(b"0", partition_key="a")
    view = run.shared_client.create_table_view(topic)
    heard: dict[str, list[str]] = {}
    view.for_each_and_listen(lambda key, value: heard.setdefault(key, []).append(value.decode()))
    for number in range(1, 6):
        for key in ("a", "b"):
            producer.send(str(number).encode(), partition_key=key)
    run.until(lambda: len(heard.get("b", [])) == 5, "the last update")
    run.record("heard", heard)
    run.record("values", [view.get("a"), view.get("b")])


@scenario(area=AREA, title="Updates in batches")
def in_batches(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10_000)

    def send(turn: int) -> None:
        for key in ("a", "b", "a"):
            producer.send_async(f"{key}{turn}".encode(), None, partition_key=key)
        producer.flush()

    send(0)
    view = run.shared_client.create_table_view(topic)
    run.record("at first", [view.get("a"), view.get("b"), len(view)])
    send(1)
    run.until(lambda: view.get("a") == b"a1", "the update")
    run.record("later", [view.get("a"), view.get("b"), len(view)])


@scenario(area=AREA, title="A key that was removed comes back")
def comes_back(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    view = run.shared_client.create_table_view(topic)
    for value, count in ((b"1", 1), (b"", 0), (b"2", 1)):
        producer.send(value, partition_key="a")
        run.until(lambda count=count: len(view) == count, "the change")  # type: ignore[misc]
        run.record("value", [view.get("a"), len(view)])


@scenario(area=AREA, title="Listeners that come late hear what is there, then what comes")
def late_listener(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    for number in range(3):
        producer.send(str(number).encode(), partition_key="a")
    view = run.shared_client.create_table_view(topic)
    heard: list[str] = []
    view.for_each_and_listen(lambda key, value: heard.append(f"{key}={value.decode()}"))
    run.until(lambda: heard, "the present value")
    producer.send(b"new", partition_key="b")
    run.until(lambda: len(heard) == 2, "the new one")
    run.record("heard", heard)


@scenario(area=AREA, title="Of a compacted topic")
def compacted(run: ScenarioRun) -> None:
    topic = run.topic()
    producer = run.producer(topic)
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("b", "")):
        producer.send(value.encode(), partition_key=key)
    run.admin.compact(topic)
    producer.send(b"3", partition_key="c")
    view = run.shared_client.create_table_view(topic)
    run.until(lambda: view.get("c") is not None, "the last key")
    run.record("values", [view.get("a"), view.get("b"), view.get("c"), len(view)])


@scenario(area=AREA, title="Keys of a partitioned topic, updated from two producers")
def partitioned(run: ScenarioRun) -> None:
    topic = run.topic(partitions=3)
    producers = [run.producer(topic) for _ in range(2)]
    view = run.shared_client.create_table_view(topic)
    for number in range(12):
        producers[number % 2].send(str(number).encode(), partition_key=f"k{number % 6}")
    run.until(lambda: view.get("k5") == b"11", "the last update")
    run.until(lambda: len(view) == 6, "all keys")
    values: dict[str, str] = {}
    run.until(lambda: view.get("k0") == b"6", "the others")
    view.for_each(lambda key, value: values.update({key: value.decode()}))
    run.record("values", values)
