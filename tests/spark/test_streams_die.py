"""Drivers that are killed with -9, at every step of a batch and at random: each message once in an idempotent sink."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from tests.spark.stream_program import STEPS
from tests.spark.streams import Sink, Stream, rest

_RUN_S = 180
_MAX_ENTRIES = 40
"""Entries of a micro-batch."""
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


class Scene:
    """A topic with what happens on it, and the programs that read it."""

    def __init__(self, url: str, topic: str, directory: Path) -> None:
        self.client = pulsar.Client(url, enable_transaction=True)
        self.topic = topic
        self._url = url
        self._directory = directory
        self.expected: set[int] = set()
        self._said = {"url": url, "topic": topic, "directory": str(directory), "most": _MAX_ENTRIES}
        self.sink = Sink(directory / "sink")
        self._next = 0

    def produce(self, drawn: random.Random, count: int) -> None:
        """Some plainly, some in batch entries, some in transactions that commit or abort."""
        batching: dict[str, Any] = {
            "batching_enabled": True,
            "batching_max_messages": 6,
            "batching_max_publish_delay_ms": 60_000,
        }
        producer = self.client.create_producer(self.topic, **(batching if drawn.random() < 0.5 else {}))
        while count > 0:
            number = min(count, drawn.randint(1, 12))
            values = range(self._next, self._next + number)
            self._next, count = self._next + number, count - number
            txn = self.client.new_transaction() if drawn.random() < 0.4 else None
            for value in values:
                producer.send_async(str(value).encode(), None, txn=txn)
            producer.flush()
            if txn is None:
                self.expected.update(values)
            elif drawn.random() < 0.5:
                txn.commit()
                self.expected.update(values)
            else:
                txn.abort()
        producer.close()

    def program(self, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.stream_program", json.dumps({**self._said, **more})],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, spark: SparkSession) -> None:
        """What is left, refused messages among it, by this process: it has a JVM that is warm."""
        self.here(spark).run()
        assert rest(self.client, self.topic, 0) == []

    def run(self, **more: Any) -> int:
        with self.program(**more) as program:
            try:
                program.communicate(timeout=_RUN_S)
            finally:
                kill(program)
            return program.returncode

    def here(self, spark: SparkSession) -> Stream:
        """The same stream in this process."""
        return Stream(spark, self._url, self.topic, self._directory, maxOffsetsPerTrigger=_MAX_ENTRIES)

    def verify(self) -> None:
        assert self.sink.values() == Counter(self.expected)


def kill(program: subprocess.Popen[str]) -> None:
    """With its JVM; one that is over is no error."""
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.fixture
def scene(service_url: str, admin: AdminClient, unique: Any, tmp_path: Path, missing: Any) -> Any:
    name = unique()
    admin.create_partitioned_topic(name, 2)
    admin.create_subscription(name, "s", from_earliest=True)
    made = Scene(service_url, name, tmp_path)
    yield made
    made.client.close()


@pytest.mark.kills
def test_a_driver_dies_when_the_sink_has_a_batch(scene: Scene, spark: SparkSession) -> None:
    """In a process of its own; this one goes on with the checkpoint."""
    drawn = random.Random(17)
    scene.produce(drawn, 30)
    assert scene.run(die="sunk", refuse=False) == -signal.SIGKILL
    delivered = scene.sink.values()
    assert delivered
    scene.produce(drawn, 20)
    scene.finish(spark)
    assert delivered <= scene.sink.values()
    scene.verify()


@pytest.mark.soak
def test_a_driver_dies_at_every_step(scene: Scene, spark: SparkSession) -> None:
    drawn = random.Random(17)
    scene.produce(drawn, 200)
    for step in STEPS:
        assert scene.run(die=step, die_in=1) == -signal.SIGKILL
        scene.produce(drawn, 40)
    scene.finish(spark)
    scene.verify()


@pytest.mark.soak
def test_drivers_die_at_random(scene: Scene, spark: SparkSession) -> None:
    seconds = float(os.environ.get("POK_CHAOS_SECONDS", "300"))
    seed = int(os.environ.get("POK_CHAOS_SEED", random.randrange(10**6)))
    print(f"seed {seed}, {seconds:.0f} s")
    drawn = random.Random(seed)
    deadline = Deadline.after(seconds)
    killed = 0
    while not deadline.passed():
        scene.produce(drawn, drawn.randint(50, 400))
        program = scene.program()
        assert program.stdout is not None
        lines = drawn.randint(1, 8)
        for line in program.stdout:
            lines -= line.startswith("batch")
            if lines <= 0:
                break
        threading.Event().wait(drawn.random())  # anywhere within the batch
        killed += program.poll() is None
        kill(program)
        program.communicate()
    scene.finish(spark)
    scene.verify()
    print(f"{killed} drivers killed, {len(scene.expected)} messages")
