"""Celery on this package's transport, on kombu's `confluentkafka` and on Redis, in turns: tasks a second and latency.

    python -m benchmarks.celery_brokers [--redis redis://localhost:6379] [--rounds 3] [--tasks 2000]

Starts a Kafka broker. Two workers of two processes each run empty tasks (`acks_late`); each task appends a line to a
file. `sends/s`: one thread that calls `delay`. `tasks/s`: from the first to the last run of a full queue. `p50` and
`p99`: from `delay` to the run, at 50 tasks a second, without the first second. Medians of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pulsar_on_kafka.embedded import BrokerOptions, open_broker
from tests.programs import ROOT
from tests.waiting import until

WORKERS = 2
PER_S = 50
PACED_S = 10
FIGURES = ("sends/s", "tasks/s", "p50 ms", "p99 ms")
_SEND = """
import sys, threading, time
from tests.celery_app import stamp
count, pause_s = int(sys.argv[1]), float(sys.argv[2])
stamp.delay(0.0)
began = time.time()
for number in range(count):
    if pause_s:
        threading.Event().wait(max(began + number * pause_s - time.time(), 0))
    stamp.delay(time.time())
print(count / (time.time() - began), flush=True)
"""


def _send(environment: Mapping[str, str], count: int, pause_s: float) -> float:
    """Sends in a process of its own, behind a first task that connects; returns messages a second."""
    done = subprocess.run(
        [sys.executable, "-c", _SEND, str(count), str(pause_s)],
        cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


@contextmanager
def _workers(environment: Mapping[str, str], output: Path) -> Iterator[None]:
    with output.open("wb") as written:
        command = [sys.executable, "-m", "celery", "-A", "tests.celery_app", "worker", "-c", "2"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        running = [
            subprocess.Popen(
                [*command, "-n", f"w{number}@bench"], cwd=ROOT, env=environment, stdout=written, stderr=written
            )
            for number in range(WORKERS)
        ]
        try:
            yield
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(120)


def _stamps(log: Path) -> list[tuple[float, float]]:
    """When each task was sent and ran; 0: the first one, which connects."""
    if not log.exists():
        return []
    lines = [line.split() for line in log.read_text().splitlines()]
    found = [words[1:] for words in lines if words[0] == "stamp"]
    return [(float(sent), float(ran)) for sent, ran in found if float(sent)]


def measured(broker: str, options: Mapping[str, object], tasks: int, folder: Path) -> dict[str, float]:
    """The figures of one round."""
    log = folder / f"{secrets.token_hex(4)}.log"
    environment = {
        **os.environ,
        "POK_CELERY_BROKER": broker,
        "POK_CELERY_CONTROL": "0",
        "POK_CELERY_LOG": str(log),
        "POK_CELERY_OPTIONS": json.dumps(options),
        "POK_CELERY_QUEUE": f"bench-{secrets.token_hex(4)}",
    }
    sends = _send(environment, tasks, 0.0)
    with _workers(environment, folder / "workers.log"):
        until(lambda: len(_stamps(log)) >= tasks, lambda: f"{tasks} tasks, not {len(_stamps(log))}", 600)
        runs = sorted(ran for _, ran in _stamps(log))
        _send(environment, PER_S * PACED_S, 1 / PER_S)
        until(lambda: len(_stamps(log)) >= tasks + PER_S * PACED_S, "the paced tasks", 600)
    paced = sorted(_stamps(log))[-PER_S * PACED_S :][PER_S:]
    latencies = statistics.quantiles(((ran - sent) * 1000 for sent, ran in paced), n=100)
    return dict(
        zip(FIGURES, (sends, (len(runs) - 1) / (runs[-1] - runs[0]), latencies[49], latencies[98]), strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", help="the URL of a Redis server; needs the package redis")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=2000)
    arguments = parser.parse_args()
    with open_broker("embedded", BrokerOptions()) as kafka, tempfile.TemporaryDirectory() as folder:
        brokers: dict[str, tuple[str, dict[str, object]]] = {
            "pulsar-on-kafka": (f"pulsar-on-kafka://{kafka.bootstrap}", {"partitions": WORKERS}),
            "pulsar-on-kafka, one partition": (f"pulsar-on-kafka://{kafka.bootstrap}", {}),
            "confluentkafka": (f"confluentkafka://{kafka.bootstrap}", {"num_partitions": WORKERS}),
        }
        if arguments.redis:
            brokers["redis"] = (arguments.redis, {})
        found: dict[str, list[dict[str, float]]] = {name: [] for name in brokers}
        for number in range(arguments.rounds):
            for name, (url, options) in brokers.items():
                found[name].append(measured(url, options, arguments.tasks, Path(folder)))
                print(f"round {number + 1} {name} {found[name][-1]}", file=sys.stderr, flush=True)
    print("| broker |", " | ".join(FIGURES), "|")
    print("|---|" + "---|" * len(FIGURES))
    for name, rounds in found.items():
        print(f"| {name} |", " | ".join(f"{statistics.median(each[f] for each in rounds):,.1f}" for f in FIGURES), "|")


if __name__ == "__main__":
    main()
