"""The consuming process: several consumers on one Shared subscription. It may be killed at any moment.

    python worker.py SERVICE_URL TOPIC SUBSCRIPTION EVIDENCE_FILE SECONDS_OF_WORK_PER_FLIGHT

It ends when its standard input ends, or in good order at SIGTERM. What it does is written to the evidence file, one
line per write, so that a SIGKILL takes back nothing that was said:

    r <unix time> <flight>                  received
    d <unix time> <flight> <flight> ...     durably acknowledged: these must never be delivered again
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event

import pulsar_on_kafka as pulsar

CONSUMERS = 4
FLUSH_EVERY_S = 0.25


class Evidence:
    """A file that only grows."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, kind: str, flights: Iterable[int]) -> None:
        os.write(self._file, f"{kind} {time.time():.3f} {' '.join(map(str, flights))}\n".encode())


class Desk:
    """One consumer and the thread that works for it."""

    def __init__(self, consumer: pulsar.Consumer, evidence: Evidence) -> None:
        self.consumer = consumer
        self.acknowledged: list[int] = []
        self._reported = 0
        self._evidence = evidence

    def work(self, seconds_per_flight: float, closing: Event) -> None:
        while not closing.is_set():
            try:
                message = self.consumer.receive(timeout_millis=100)
            except pulsar.Timeout:
                continue
            flight = json.loads(message.data())
            self._evidence.say("r", [flight["id"]])
            if seconds_per_flight:
                closing.wait(seconds_per_flight)
            if flight["dep_time"] is None:
                continue  # it never left: not acknowledged, it stays in the backlog for somebody to look at
            self.consumer.acknowledge(message)
            self.acknowledged.append(flight["id"])

    def acknowledged_so_far(self) -> list[int]:
        """What was acknowledged since the last call."""
        upto = len(self.acknowledged)
        new = self.acknowledged[self._reported : upto]
        self._reported = upto
        return new


def make_durable(desks: list[Desk], evidence: Evidence) -> None:
    """Flush, then say what that made durable: what was acknowledged before the flush began, and no more."""
    acknowledged = [flight for desk in desks for flight in desk.acknowledged_so_far()]
    desks[0].consumer.flush()  # one flush covers all consumers that this process has on the subscription
    if acknowledged:
        evidence.say("d", acknowledged)


def input_ended(within_s: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], within_s)
    return bool(readable) and not sys.stdin.read(1)


def main(service_url: str, topic: str, subscription: str, evidence_file: str, seconds_per_flight: str) -> None:
    evidence = Evidence(evidence_file)
    client = pulsar.Client(service_url)
    client.close_on_signals()
    desks = [
        Desk(
            client.subscribe(
                topic,
                subscription,
                consumer_type=pulsar.ConsumerType.Shared,
                initial_position=pulsar.InitialPosition.Earliest,
                consumer_name=f"desk-{number}",
            ),
            evidence,
        )
        for number in range(CONSUMERS)
    ]
    closing = Event()
    with ThreadPoolExecutor(CONSUMERS) as threads:
        working = [threads.submit(desk.work, float(seconds_per_flight), closing) for desk in desks]
        try:
            while not input_ended(within_s=FLUSH_EVERY_S) and not any(one.done() for one in working):
                make_durable(desks, evidence)
        finally:
            closing.set()
        for one in working:
            one.result()  # an exception of a thread ends the process
    make_durable(desks, evidence)
    client.close()


if __name__ == "__main__":
    with suppress(pulsar.AlreadyClosed):  # by SIGTERM
        main(*sys.argv[1:])
