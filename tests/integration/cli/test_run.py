"""`pok run`: a program that imports pulsar, unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.programs import ROOT
from tests.steps import Unique

_PROGRAM = """
import multiprocessing
import sys

import _pulsar
import pulsar
from pulsar.schema import AvroSchema, Integer, Record


class Order(Record):
    number = Integer(required=True)


def child(topic):
    client = pulsar.Client("pulsar://broker-1:6650,broker-2:6650")
    client.create_producer(topic, schema=AvroSchema(Order)).send(Order(number=7))
    client.close()


if __name__ == "__main__":
    client = pulsar.Client("pulsar://broker-1:6650,broker-2:6650")
    consumer = client.subscribe(sys.argv[1], "s", schema=AvroSchema(Order))
    process = multiprocessing.get_context("spawn").Process(target=child, args=sys.argv[1:2])
    process.start()
    message = consumer.receive(60_000)
    consumer.acknowledge(message)
    print(message.value().number, isinstance(message.message_id(), _pulsar.MessageId), sys.argv[2:])
    process.join()
    client.close()
    sys.exit(3)
"""


def test_an_unchanged_program_and_its_child_run_on_kafka(service_url: str, unique: Unique, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    pok = [sys.executable, "-m", "pulsar_on_kafka.cli"]
    done = subprocess.run(
        [*pok, "run", "--url", service_url, program, unique("run"), "--url", "x"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("7 True ['--url', 'x']\n", 3), done.stderr
