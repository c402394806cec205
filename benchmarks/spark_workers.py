"""The measured programs of Spark, ours beside its own Kafka source; all run in one process and one session.

Each takes `url`, the layer's service URL, and `messages`, how many the topic holds. Topics are filled, and
subscriptions made, when they are asked for first; that is not measured, and then the number of rows is checked.
"""

from __future__ import annotations

import gc
import tempfile
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.model import OWN_SDK
from benchmarks.session import run_worker
from benchmarks.spark_states import HALF, NONE
from benchmarks.worker import peak_mb
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.effects.kafka_partitions import KafkaDataPartitions
from pulsar_on_kafka.broker.transactions.upkeep.sealing import Sealing
from pulsar_on_kafka.spark import read_pulsar, session, stream_pulsar
from pulsar_on_kafka.statelog.owned import random_session
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from pulsar_on_kafka_spark.reading.connection import BY_DEFAULT
from pulsar_on_kafka_spark.reading.kafka_scan import second_version
from tests.clocks import SetClock

PLAIN: Final = "plain"
"""Messages one by one."""
BARE: Final = "bare"
"""The same, sent by a plain Kafka client: without headers."""
TRANSACTIONS: Final = "transactions"
"""In transactions of 100; for each ten that are committed one more is aborted. Read when no record of these can come
any more, some minutes later: until then those at the end of the log are read with headers."""
BATCHES: Final = "batches"
"""In batches of the SDK's default limits."""

_LIKE_KAFKAS: Final = ("value", "__key", "__topic", "__messageId", "__publishTime")
"""Of the columns that a read has by default those that Spark's own source has, too."""
_PARTITIONS: Final = 4
_IN_TRANSACTION: Final = 100
_FLUSH_S: Final = 120.0
_SEALED_S: Final = 120.0
_LATER_S: Final = 3600
_SETTINGS: Final = {
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}
_MB: Final = 1024 * 1024


# What is measured -----------------------------------------------------------------------------------------------------


def read_plain(
    url: str, messages: int, kind: str = PLAIN, size: int = 200, headers: bool = False, tuned: bool = False
) -> dict[str, Any]:
    """Spark's own Kafka source over the whole topic, all of its columns. `tuned`: its second version, with the Kafka
    options of our reader."""
    kafka_topic = _kafka_topic(url, _topic(url, messages, kind, size))
    options = {**_source(url, tuned), "subscribe": kafka_topic, "includeHeaders": str(headers).lower()}
    start_s = time.monotonic()
    if tuned:
        _consume(second_version(_spark(), options))
    else:
        _consume(_spark().read.format("kafka").options(**options).load())
    return {"read_s": _since(start_s)}


def read(
    url: str,
    messages: int,
    kind: str = PLAIN,
    size: int = 200,
    state: str | None = None,
    columns: str | None = None,
    headers: bool = False,
) -> dict[str, Any]:
    """`read_pulsar`, snapshot and planning included. `state`: of a subscription (`spark_states`); None: of none.
    `headers`: with the columns that only headers tell, which are dropped."""
    topic = _topic(url, messages, kind, size)
    options: dict[str, Any] = {"service_url": url, "topic": topic, "columns": columns}
    if headers:
        options["includeHeaders"] = True
    if state is not None:
        options["subscription"] = _subscription(url, topic, messages, state)
    start_s = time.monotonic()
    frame = read_pulsar(_spark(), **options)
    planned_s = _since(start_s)
    _consume(frame.select(*_LIKE_KAFKAS) if columns is None else frame)
    return {"read_s": _since(start_s), "plan_s": planned_s}


def read_source(
    url: str, messages: int, state: str | None = None, columns: str | None = None, jvm: bool = False
) -> dict[str, Any]:
    """The Python data source, planning included, or `read_pulsar` with `jvm`; and the CPU time that a row takes in the
    driver, the JVM and Spark's Python workers together."""
    topic = _topic(url, messages, PLAIN, 200)
    options = {"service.url": url, "topic": topic, **({} if columns is None else {"columns": columns})}
    rows = messages
    if state is not None:
        options["subscription"] = _subscription(url, topic, messages, state)
        rows = messages // 2
    spark = _spark()
    used_s, start_s = _cpu_s(), time.monotonic()
    if jvm:
        _consume(read_pulsar(spark, **options))
    else:
        _consume(spark.read.format("pulsar_on_kafka").options(**options).load())
    return {"read_s": _since(start_s), "cpu_us_a_row": round((_cpu_s() - used_s) / rows * 1e6, 2)}


def _cpu_s() -> float:
    """CPU seconds of this process and all below it, so far."""
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def stream_plain(url: str, messages: int, batches: int, tuned: bool = False) -> dict[str, Any]:
    """Spark's own Kafka source and `foreachBatch`, in so many micro-batches. `tuned`: with the Kafka options of our
    reader."""
    kafka_topic = _kafka_topic(url, _topic(url, messages, PLAIN, 200))
    with tempfile.TemporaryDirectory() as directory:
        start_s = time.monotonic()
        source = _spark().readStream.format("kafka").options(**_source(url, tuned))
        source = source.option("subscribe", kafka_topic).option("startingOffsets", "earliest")
        rows = source.option("maxOffsetsPerTrigger", messages // batches).load()
        writer = rows.writeStream.foreachBatch(lambda frame, number: _consume(frame))
        query = writer.option("checkpointLocation", directory).trigger(availableNow=True).start()
        query.awaitTermination()
        return {"read_s": _since(start_s)}


def stream(url: str, messages: int, batches: int, acknowledge: bool) -> dict[str, Any]:
    """`stream_pulsar` on a subscription that has acknowledged a random half; each micro-batch asks for the state."""
    topic = _topic(url, messages, PLAIN, 200)
    # What is acknowledged back changes the subscription: each round has its own.
    subscription = _new_subscription(url, topic, HALF)[0] if acknowledge else _subscription(url, topic, messages, HALF)
    with tempfile.TemporaryDirectory() as directory:
        start_s = time.monotonic()
        asked = stream_pulsar(
            _spark(), service_url=url, topic=topic, subscription=subscription, acknowledge=acknowledge,
            maxOffsetsPerTrigger=messages // batches,
        )  # fmt: skip
        query = asked.foreach_batch(
            lambda frame, number: _consume(frame.select(*_LIKE_KAFKAS)), checkpoint=directory, available_now=True
        )
        query.awaitTermination()
        return {"read_s": _since(start_s)}


def driver(url: str, messages: int, state: str) -> dict[str, Any]:
    """What a snapshot takes of the driver: time, the most that Python grew by, what the JVM holds of it afterwards."""
    topic = _topic(url, messages, BARE, 20)
    subscription = _subscription(url, topic, messages, state)
    gc.collect()
    held_mb = _jvm_mb()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM begins anew
    before_mb = peak_mb()
    start_s = time.monotonic()
    frame = read_pulsar(_spark(), service_url=url, topic=topic, subscription=subscription, columns="__offset")
    planned_s = _since(start_s)
    grown_mb = round(peak_mb() - before_mb, 1)
    start_s = time.monotonic()
    frame.take(1)
    first_s = _since(start_s)
    return {
        "plan_s": planned_s, "first_row_s": first_s, "python_mb": grown_mb, "jvm_mb": round(_jvm_mb() - held_mb, 1)
    }  # fmt: skip


# What it is measured on -----------------------------------------------------------------------------------------------


@cache
def _spark() -> SparkSession:
    return session("benchmarks", master="local[*]", config=_SETTINGS)


def _consume(frame: DataFrame) -> None:
    """Have every column of every row made, and drop it."""
    frame.write.format("noop").mode("overwrite").save()


@cache
def _topic(url: str, messages: int, kind: str, size: int) -> str:
    name = f"bench-spark-{uuid.uuid4().hex}"
    with AdminClient(url) as admin:
        admin.create_partitioned_topic(name, _PARTITIONS)
    where = {"sdk": OWN_SDK, "url": url, "topic": name, "messages": messages, "size": size}
    if kind == TRANSACTIONS:
        run_worker("sdk_workers", "produce_in_transactions", {**where, "in_transaction": _IN_TRANSACTION})
        _seal(url, name)
    elif kind == BARE:
        _send_bare(_bootstrap(url), _kafka_topic(url, name), messages, size)
    else:
        run_worker("sdk_workers", "produce", {**where, "batching": kind == BATCHES})
    if kind not in (PLAIN, BARE):  # there, records are no messages
        _check(read_pulsar(_spark(), service_url=url, topic=name, columns="__offset"), messages)
    return name


def _seal(url: str, topic: str) -> None:
    """What `pok serve` and clients with transactions do some minutes after a transaction was aborted, at once: nobody
    sends here any more."""
    later = SetClock(time.time() + _LATER_S)
    with AdminClient(url) as admin:
        node = admin.node
        reading = node.settings.reader(fetch_queue_kbytes=1024)
        data = KafkaDataPartitions(node.topics, node.admin, node.fetcher, node.state_producer, SystemClock(), reading)
        sealing = Sealing(node.log, node.transaction_views, data, later, random_session())
        name = str(TopicName.parse(topic))
        deadline = Deadline.after(_SEALED_S)
        while any(one.unsealed for one in admin.get_transaction_buffer_stats(topic)):
            sealing.run([TRANSACTION_BUFFER_SNAPSHOT.partition_for(name)], deadline)
            if deadline.passed():
                raise RuntimeError(f"{topic} has unsealed transactions after {_SEALED_S:.0f} s")


def _send_bare(bootstrap: str, kafka_topic: str, messages: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    payload = b"x" * size
    for number in range(messages):
        try:
            producer.produce(kafka_topic, payload, partition=number % _PARTITIONS)
        except BufferError:
            producer.flush(_FLUSH_S)
            producer.produce(kafka_topic, payload, partition=number % _PARTITIONS)
    if producer.flush(_FLUSH_S):
        raise RuntimeError(f"the broker did not take all of {messages} messages")


@cache
def _subscription(url: str, topic: str, messages: int, state: str) -> str:
    name, acknowledged = _new_subscription(url, topic, state)
    frame = read_pulsar(_spark(), service_url=url, topic=topic, subscription=name, columns="__offset")
    _check(frame, messages - acknowledged)
    return name


def _new_subscription(url: str, topic: str, state: str = NONE) -> tuple[str, int]:
    """Its name, and how many messages it has acknowledged."""
    name = f"s-{uuid.uuid4().hex}"
    what = {"url": url, "topic": topic, "subscription": name, "state": state}
    return name, int(run_worker("spark_states", "prepare", what)["acknowledged"])


def _check(frame: DataFrame, expected: int) -> None:
    found = frame.count()
    if found != expected:
        raise RuntimeError(f"{found} rows were read instead of {expected}")


@cache
def _kafka_topic(url: str, topic: str) -> str:
    with AdminClient(url) as admin:
        return admin.topic_stats(topic).kafka_topic


def _source(url: str, tuned: bool) -> dict[str, str]:
    """Options of Spark's own Kafka source. `tuned`: with a group id, too, by which executors take the
    consumers of the last query."""
    more = {f"kafka.{name}": value for name, value in BY_DEFAULT.items()} | {"kafka.group.id": "tuned"} if tuned else {}
    return {"kafka.bootstrap.servers": _bootstrap(url), **more}


def _bootstrap(url: str) -> str:
    return url.removeprefix("kafka://")


def _jvm_mb() -> float:
    """What the JVM's heap holds, garbage apart."""
    jvm: Any = _spark()._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    for _ in range(3):  # Spark's own cleaner drops what became unreachable in between
        jvm.java.lang.System.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / _MB


def _since(start_s: float) -> float:
    return round(time.monotonic() - start_s, 3)
