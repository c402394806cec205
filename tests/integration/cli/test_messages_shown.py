"""`pok peek` and `pok consume`: what they print of messages of every kind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.schema import (
    AvroSchema,
    Integer,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    ProtobufNativeSchema,
    Record,
    String,
    StringSchema,
)
from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType
from tests.integration.client.test_encryption import key_pair
from tests.integration.command_line import CommandLine
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


class Order(Record):
    name = String()
    count = Integer()


@pytest.fixture
def peek(service_url: str) -> CommandLine:
    return CommandLine(service_url, "peek")


@pytest.fixture
def consume(service_url: str) -> CommandLine:
    return CommandLine(service_url, "consume")


def objects(outcome: Any) -> list[Any]:
    return [json.loads(line) for line in outcome.stdout.splitlines()]


def columns(outcome: Any) -> list[list[str]]:
    return [line.split("\t") for line in outcome.stdout.splitlines()]


def values(peek: CommandLine, topic: str) -> list[str]:
    return [line[3] for line in columns(peek(topic))]


def test_nothing_is_made_and_nothing_acknowledged(
    peek: CommandLine, client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    assert f"{topic} does not exist" in peek.refused(topic)
    assert f"persistent://public/default/{topic}" not in admin.list_topics()
    assert "namespace no/such does not exist" in peek.refused("no/such/topic")
    producer = client.create_producer(topic)
    assert peek(topic).stdout == ""
    producer.send(b"one", {"colour": "red"}, partition_key="k")
    producer.send(None)
    producer.send(b"\xff\x00")
    for _ in range(2):
        assert [line[1:] for line in columns(peek(topic))] == [
            ["k", "colour=red", "one"], ["-", "-", "-"], ["-", "-", "base64:/wA="],
        ]  # fmt: skip
    one, nothing, odd = objects(peek(topic, "--output", "json"))
    assert (one["payload"], one["key"], one["ordering_key"], one["properties"]) == ("one", "k", None, {"colour": "red"})
    assert nothing["payload"] is None
    assert odd["payload_base64"] == "/wA="
    assert "value" not in one
    assert admin.list_subscriptions(topic) == []


@pytest.mark.long
def test_values_are_read_by_the_schema_that_they_were_written_with(
    peek: CommandLine, consume: CommandLine, client: pulsar.Client, unique: Unique
) -> None:
    from google.protobuf.wrappers_pb2 import StringValue

    shown = {
        "avro": (AvroSchema(Order), Order(name="a", count=1), '{"name": "a", "count": 1}'),
        "json": (JsonSchema(Order), Order(name="b", count=2), '{"name": "b", "count": 2}'),
        "string": (StringSchema(), "Grüße", "Grüße"),
        "protobuf": (ProtobufNativeSchema(StringValue), StringValue(value="c"), "c"),
        "pair": (KeyValueSchema(StringSchema(), AvroSchema(Order)), KeyValue("k", Order(name="d", count=4)),
                 '{"key": "k", "value": {"name": "d", "count": 4}}'),
        "apart": (KeyValueSchema(StringSchema(), JsonSchema(Order), KeyValueEncodingType.SEPARATED),
                  KeyValue("k", Order(name="e", count=5)), '{"key": "k", "value": {"name": "e", "count": 5}}'),
    }  # fmt: skip
    for name, (schema, value, text) in shown.items():
        topic = unique(name)
        client.create_producer(topic, schema=schema).send(value)
        assert values(peek, topic) == [text]
        (told,) = objects(peek(topic, "--output", "json"))
        assert told["value"] == (text if name in ("string", "protobuf") else json.loads(text))
        for kind in ("exclusive", "key_shared"):
            printed = consume(topic, "-s", kind, "--type", kind, "--initial", "earliest", "--timeout-ms", "60000")
            assert columns(printed)[0][3] == text


def test_a_number_and_what_cannot_be_decoded(
    peek: CommandLine, client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_schema(topic, SchemaInfo.declared(SchemaType.INT32, b"", "INT32"))
    producer = client.create_producer(topic, schema=pulsar.schema.AutoProduceBytesSchema())
    producer.send((258).to_bytes(4, "big"))
    assert values(peek, topic) == ["258"]
    wrong = unique()
    made = client.create_producer(wrong, schema=AvroSchema(Order))
    made.send(Order(name="a", count=1))
    version = admin.peek_messages(wrong)[0]
    assert version.decoded
    admin.delete_schema(wrong, force=True)
    (line,) = columns(peek(wrong))
    assert "(not decoded: " in line[3]
    (told,) = objects(peek(wrong, "--output", "json"))
    assert "value" not in told
    assert told["undecoded"]


def test_batches_chunks_and_large_values(peek: CommandLine, client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for number in range(3):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    client.create_producer(topic, chunking_enabled=True).send(b"x" * 6_000_000)
    lines = columns(peek(topic))
    assert [line[3] for line in lines[:3]] == ["0", "1", "2"]
    assert [line[0].split(":")[2:] for line in lines] == [["-1", "0"], ["-1", "1"], ["-1", "2"], []]
    assert lines[3][3] == f"{'x' * 4096}... (6,000,000 bytes)"
    assert [line[3][:1] for line in columns(peek(topic, "--from", lines[1][0]))] == ["1", "2", "x"]
    assert len(objects(peek(topic, "--output", "json"))[3]["payload"]) == 6_000_000


def test_what_is_encrypted_is_said_to_be(
    peek: CommandLine, consume: CommandLine, client: pulsar.Client, unique: Unique, tmp_path: Path
) -> None:
    topic, keys = unique(), key_pair(tmp_path, "a")
    client.create_producer(topic, encryption_key="k1", crypto_key_reader=keys).send(b"secret", partition_key="k")
    for printed in (peek(topic), consume(topic, "-s", "s", "--initial", "earliest", "--timeout-ms", "60000")):
        (line,) = columns(printed)
        assert line[1] == "k"
        assert line[3].startswith("(encrypted, ")
    (told,) = objects(peek(topic, "--output", "json"))
    assert told["encrypted"] is True
    assert "secret" not in json.dumps(told)


def test_from_where_how_many_and_which_key(peek: CommandLine, client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    for number in range(12):
        producer.send(str(number).encode(), partition_key=f"k{number % 3}")
    after_ms = int(time.time() * 1000) + 1
    until(lambda: time.time() * 1000 > after_ms + 1, "the next milliseconds")
    producer.send(b"late", partition_key="k1")
    lines = columns(peek(topic, "-n", "0"))
    assert [line[3] for line in lines] == [*map(str, range(12)), "late"]
    assert values(peek, topic) == [str(number) for number in range(10)]
    assert [line[3] for line in columns(peek(topic, "-n", "2", "--from", lines[7][0]))] == ["7", "8"]
    assert [line[3] for line in columns(peek(topic, "--from", str(after_ms)))] == ["late"]
    assert [line[3] for line in columns(peek(topic, "--from", "1h", "-n", "1"))] == ["0"]
    assert peek(topic, "--from", "latest").stdout == ""
    assert [line[3] for line in columns(peek(topic, "--key", "k1", "-n", "3"))] == ["1", "4", "7"]
    assert "expected" in peek(topic, "--from", "yesterday", exits=2).stderr
    assert "ledger:entry" in peek(topic, "--from", "1:x", exits=2).stderr
    assert peek.refused(topic, "--from", f"{2**50}:0")


def test_partitions(peek: CommandLine, client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    for partition in range(2):
        producer = client.create_producer(f"{topic}-partition-{partition}")
        for number in range(3):
            producer.send(f"{partition}.{number}".encode())
    assert sorted(values(peek, topic)) == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    lines = columns(peek(f"{topic}-partition-1"))
    assert [line[3] for line in lines] == ["1.0", "1.1", "1.2"]
    assert [line[3] for line in columns(peek(topic, "--from", lines[1][0]))] == ["1.1", "1.2"]
    assert "has 2 partitions" in peek.refused(f"{topic}-partition-7")


def test_follow_goes_on_until_ctrl_c(service_url: str, client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    producer.send(b"first")
    command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", service_url, "peek", topic, "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().rstrip("\n").endswith("\tfirst")
            producer.send(b"second")
            assert process.stdout.readline().rstrip("\n").endswith("\tsecond")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_reset_to_a_message_of_a_batch(service_url: str, client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for number in range(5):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    third = columns(CommandLine(service_url, "peek")(topic))[3][0]
    subscriptions, consume = CommandLine(service_url, "subscriptions"), CommandLine(service_url, "consume")
    subscriptions("create", topic, "-s", "s")
    subscriptions("reset", topic, "-s", "s", "--message-id", third, "--yes")
    assert [line[3] for line in columns(consume(topic, "-s", "s", "-n", "2", "--timeout-ms", "60000"))] == ["3", "4"]


def test_help_names_them() -> None:
    told = CliRunner().invoke(app, ["--help"]).stdout
    assert "peek" in told
    assert "dlq" in told
