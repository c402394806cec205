"""Sessions of Spark Connect: the same rows as in a classic one, and what they cannot is refused with its reason."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded.settings import free_port
from pulsar_on_kafka.schema import AvroSchema, Integer, Record, String
from pulsar_on_kafka.spark import read_pulsar
from pulsar_on_kafka_spark.base.spark_java import java_home
from tests.programs import ROOT
from tests.spark.conftest import MASTER, SETTINGS
from tests.spark.connect_program import shown
from tests.spark.streams import produce, rest
from tests.steps import SHARED, Unique, receive
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.long]

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Connected:
    """A program with a session of Connect."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._asked = 0

    def ask(self, do: str, **said: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asked += 1
        print(json.dumps([self._asked, {"do": do, **said}]), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            number, answer = json.loads(line)
            if number == self._asked:  # else it is one that a test did not wait for
                assert "failed" not in (answer if isinstance(answer, dict) else {}), answer
                return answer
        raise AssertionError(f"the program ended with {self._process.wait(30)}")

    def refusal(self, do: str, **said: Any) -> str:
        return str(self.ask(do, **said)["refused"])


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    """Of a server that has none of the connector's jars: the session brings them."""
    pytest.importorskip("grpc")
    directory = tmp_path_factory.mktemp("connect")
    port = str(free_port())
    settings = {**SETTINGS, "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": port}
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    said = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [str(submit), "--master", MASTER, *said, "--class", _SERVER, "spark-internal"]
    with java_home(), (directory / "server.log").open("w") as log:
        environment = {**os.environ, "PYSPARK_PYTHON": str(_worker_python(directory))}
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=directory)
        try:
            until(lambda: _listens(port, server), "the server to listen", within_s=120)
            with _program({**environment, "SPARK_REMOTE": f"sc://127.0.0.1:{port}"}) as process:
                yield Connected(process)
        finally:
            server.terminate()
            server.wait(60)


def _worker_python(directory: Path) -> Path:
    """Python for Spark's workers, with Spark's code as it is installed. Spark has them import it from an archive, where
    no compiled code is kept: at each start that takes three times as long."""
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH= exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return python


def _program(environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.spark.connect_program"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def _listens(port: str, server: subprocess.Popen[bytes]) -> bool:
    assert server.poll() is None, "the server ended"
    with closing(socket.socket()) as found:
        return found.connect_ex(("127.0.0.1", int(port))) == 0


class Order(Record):
    item = String()
    count = Integer()


def test_it_is_a_session_of_connect(connected: Connected) -> None:
    assert connected.ask("session") == "pyspark.sql.connect.session"


@pytest.mark.soak
def test_a_read_has_the_rows_of_a_classic_session(
    connected: Connected, spark: SparkSession, transactional: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    consumer = transactional.subscribe(topic, "s", consumer_type=SHARED)
    plain = transactional.create_producer(topic)
    batched = transactional.create_producer(topic, batching_enabled=True, batching_max_messages=10)
    chunked = transactional.create_producer(topic, chunking_enabled=True)
    for number in range(40):
        batched.send_async(b"b%d" % number, None, partition_key=f"k{number}")
    batched.flush()
    for number in range(40):
        plain.send(b"p%d" % number, ordering_key="o", event_timestamp=1_000, properties={"n": str(number)})
    chunked.send(os.urandom(6_000_000))
    for end in ("commit", "abort"):
        txn = transactional.new_transaction(60_000)
        plain.send(end.encode(), txn=txn)
        getattr(txn, end)()
    for number, message in enumerate(receive(consumer, 60)):
        if number % 3:
            consumer.acknowledge(message)
    consumer.close()
    options = {"service_url": service_url, "topic": topic, "columns": "all"}
    for more in ({}, {"subscription": "s"}):
        expected = shown(read_pulsar(spark, **options, **more).collect())
        assert len(expected) == 82 - 40 * len(more)
        assert connected.ask("read", **options, **more) == expected


def test_values_are_those_of_the_schema(
    connected: Connected, spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    for number in range(5):
        producer.send(Order(item=f"i{number}", count=number))
    options = {"service_url": service_url, "topic": topic}
    found = connected.ask("read", where="count > 1", **options)
    assert found == shown(read_pulsar(spark, **options).where("count > 1").collect())
    assert len(found) == 3


def test_rows_are_written_and_acknowledged(
    connected: Connected, admin: AdminClient, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s", from_earliest=True)
    options = {"service_url": service_url, "topic": topic}
    connected.ask("write", query="select cast(id as string) as value, cast(id as string) as k from range(20)",
                  keyColumn="k", schema="bytes", **options)  # fmt: skip
    assert connected.ask("acknowledge", where="cast(value as string) % 2 = 0", subscription="s", **options) == 10
    assert rest(client, topic, 10) == list(range(1, 20, 2))


@pytest.mark.soak
def test_columns_are_widened_to_the_schema(
    connected: Connected, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", schema=AvroSchema(Order))
    options = {"service_url": service_url, "topic": topic}
    connected.ask("write", query="select 5 as item, cast(1 as smallint) as count", **options)
    (message,) = receive(consumer, 1)
    assert (message.value().item, message.value().count) == ("5", 1)
    refused = connected.refusal("write", query="select 'a' as item, 1L as count", **options)
    assert "column count is bigint, the schema has int" in refused


@pytest.mark.soak
def test_micro_batches_are_written_on_the_server(
    connected: Connected, client: pulsar.Client, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic, copies = unique("from"), unique("to")
    for number in range(10):
        client.create_producer(topic).send(str(number).encode())
    consumer = client.subscribe(copies, "s")
    connected.ask("batches", copies=f"public.default.{topic}", checkpoint=str(tmp_path / "checkpoint"),
                  service_url=service_url, topic=copies, schema="bytes")  # fmt: skip
    assert sorted(int(message.data()) for message in receive(consumer, 10)) == list(range(10))


def test_the_data_source_streams(
    connected: Connected, client: pulsar.Client, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    produce(client, topic, range(20))
    for message in receive(consumer, 20):
        if int(message.data()) % 2:
            consumer.acknowledge(message)
    consumer.close()
    options = {"service.url": service_url, "topic": topic, "subscription": "s", "columns": "value,__offset"}
    found = connected.ask("source", checkpoint=str(tmp_path / "c"), table=str(tmp_path / "t"), **options)
    assert sorted(int(bytes.fromhex(value)) for value, _ in found) == list(range(0, 20, 2))
    assert rest(client, topic) == []


def test_what_needs_a_jvm_is_refused(connected: Connected, service_url: str, unique: Unique) -> None:
    options = {"service_url": service_url, "topic": unique()}
    told = connected.refusal("stream", subscription="s", **options)
    assert told.startswith("SparkNotReady: a stream's triggers and offsets come from this process")
    told = connected.refusal("write", query="select 'a' as value", transaction=True, schema="bytes", **options)
    assert told.startswith("SparkNotReady: the result of a transactional write comes from the scheduler")
    told = connected.refusal("write", query="select 'a' as a", schema="avro", **options)
    assert told.startswith("SparkNotReady: a schema is made of columns in the driver's JVM (schema='avro')")
