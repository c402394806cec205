"""`pok dlq redrive` is killed again and again, alone and beside another one: each letter is at its origin once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import Unique
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.kills]

_LETTERS = 3000
_KILLS = 6
_PATIENCE_S = 300.0


class Redrives:
    """Processes that put letters back, of which chance kills one or all, once the origin has got so much more."""

    def __init__(self, url: str, letters: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, "dlq", "redrive", letters]
        self._log = log
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, stack: ExitStack) -> None:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, "POK_LOG_LEVEL": "INFO"}
            )
        stack.callback(process.wait)
        stack.callback(process.kill)
        self.running.append(process)

    def ended(self) -> bool:
        """Somebody ended by itself; it must have ended well."""
        gone = [process for process in self.running if process.poll() is not None]
        assert all(process.returncode == 0 for process in gone), self._log.read_text(encoding="utf-8")
        return bool(gone)

    def kill(self, how_many: int) -> None:
        for process in self.running[:how_many]:
            process.kill()
            process.wait()
        self.running = self.running[how_many:]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_each_letter_goes_back_once_whatever_dies(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    origin, letters = unique("orders"), unique("letters") + "-DLQ"
    admin.create_partitioned_topic(origin, 2)
    admin.create_partitioned_topic(letters, 2)
    producer = client.create_producer(letters, block_if_queue_full=True)
    for number in range(_LETTERS):
        whence = {"REAL_TOPIC": f"{origin}-partition-{number % 2}", "ORIGIN_MESSAGE_ID": f"(0,{number},-1,-1)"}
        producer.send_async(str(number).encode(), None, whence, partition_key=f"k{number % 7}")
    producer.flush()

    def arrived() -> int:
        return admin.topic_stats(origin).entries

    redrives = Redrives(service_url, letters, tmp_path / "redrives.log")
    with ExitStack() as stack:
        killed = 0
        while killed < _KILLS:
            while len(redrives.running) < chance.choice((1, 2)):
                redrives.start(stack)
            enough = arrived() + chance.randrange(1, _LETTERS // 4)
            until(
                lambda enough=enough: redrives.ended() or arrived() >= enough,  # type: ignore[misc]
                lambda: f"more than {arrived()} entries: {redrives._log.read_text(encoding='utf-8')[-2000:]}",
                _PATIENCE_S,
            )
            if redrives.ended():
                break
            many = chance.randrange(1, len(redrives.running) + 1)
            redrives.kill(many)
            killed += many
        assert killed, "nobody was killed: too few letters for this machine"
        if not redrives.running:
            redrives.start(stack)
        for process in redrives.running:
            process.wait(_PATIENCE_S)
        assert redrives.ended()
    reader = client.create_reader(origin, pulsar.MessageId.earliest)
    found: Counter[int] = Counter()
    while reader.has_message_available():
        message = reader.read_next(60_000)
        assert message.properties() == {}
        number = int(message.data())
        assert message.topic_name().endswith(f"{origin}-partition-{number % 2}")
        found[number] += 1
    assert found == Counter(range(_LETTERS))
    (told,) = admin.dead_letter_topics(topic=letters)
    assert told.left == 0
    assert admin.dead_letters(letters) == []
