"""`pok spark` on a real broker, in this process's Spark."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.schema import AvroSchema, Integer, Record, String
from tests.seeds import first_of
from tests.steps import Unique


class Order(Record):
    item = String()
    amount = Integer()


def pok(service_url: str, *arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["--url", service_url, *arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.stdout, found.stderr


@pytest.fixture
def topic(client: pulsar.Client, unique: Unique) -> str:
    """Five orders."""
    name = unique()
    producer = client.create_producer(name, schema=AvroSchema(Order))
    for number in range(5):
        producer.send(Order(item=f"item {number}", amount=number), partition_key=f"k{number}")
    return name


def test_read(spark: SparkSession, service_url: str, topic: str) -> None:
    code, out, _ = pok(service_url, "spark", "read", topic, "--columns", "value,__offset", "--output", "json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows == [{"item": f"item {n}", "amount": n, "__offset": n} for n in range(5)]
    code, out, _ = pok(service_url, "spark", "read", topic, "--limit", "2")
    assert code == 0
    assert "item 1" in out
    assert "item 2" not in out
    assert "k1" in out


def test_count_and_what_is_left_of_a_subscription(
    spark: SparkSession, client: pulsar.Client, service_url: str, topic: str
) -> None:
    consumer = client.subscribe(topic, "audit", initial_position=pulsar.InitialPosition.Earliest)
    consumer.acknowledge_cumulative([consumer.receive(20_000) for _ in range(3)][-1])
    consumer.close()
    arguments = ("spark", "read", topic, "-s", "audit", "--columns", "value,__offset", "--output", "json")
    rows = [json.loads(line) for line in pok(service_url, *arguments)[1].splitlines()]
    assert rows == [{"item": f"item {n}", "amount": n, "__offset": n} for n in (3, 4)]
    assert pok(service_url, "spark", "count", topic, "-s", "audit")[1] == "2\n"
    assert pok(service_url, "spark", "count", topic)[1] == "5\n"
    code, out, _ = pok(service_url, "--output", "json", "spark", "count", topic)
    assert code == 0
    assert json.loads(out)["messages"] == 5


@pytest.mark.parametrize("form", first_of(1, ["parquet", "json", "csv"]))
def test_export(spark: SparkSession, service_url: str, topic: str, tmp_path: Path, form: str) -> None:
    to = str(tmp_path / "out")
    assert pok(service_url, "spark", "export", topic, "--to", to, "--format", form)[0] == 0
    if form == "csv":
        rows = [row for file in sorted(Path(to).glob("*.csv")) for row in csv.DictReader(file.open())]
        assert {(row["item"], row["amount"], row["__key"]) for row in rows} >= {("item 1", "1", "azE=")}
        assert len(rows) == 5
    else:
        frame = spark.read.format(form).load(to)
        assert sorted(row.amount for row in frame.collect()) == list(range(5))
    code, _, err = pok(service_url, "spark", "export", topic, "--to", to, "--format", form)
    assert code == 1
    assert "exists already" in err
    assert pok(service_url, "spark", "export", topic, "--to", to, "--format", form, "--append", "--limit", "1")[0] == 0


def test_what_is_missing_is_said_in_one_line(spark: SparkSession, service_url: str, topic: str, unique: Unique) -> None:
    code, _, err = pok(service_url, "spark", "read", unique("nowhere"))
    assert code == 1
    assert len(err.splitlines()) == 1
    assert pok(service_url, "spark", "read", topic, "--start", "yesterday")[0] == 2
    assert pok(service_url, "spark", "read", topic, "--executor-config", "nonsense")[0] == 2


@pytest.mark.long
def test_spark_s_own_log_stays_out_of_the_output(service_url: str, topic: str) -> None:
    program = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", service_url, "spark", "count", topic]
    found = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "5\n", "")


def test_without_pyspark_it_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; "
        "from pulsar_on_kafka.cli.main import app; app(['spark', 'count', 'orders'], prog_name='pok')"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "pip install 'pulsar-on-kafka[spark]'" in found.stderr
    assert len(found.stderr.splitlines()) == 1
