"""A fleet of worker processes share the orders of a topic of one partition: start, share, refuse, bury, stop, count.

    python examples/worker_fleet.py                              4 workers, 400 orders, on a broker of its own
    python examples/worker_fleet.py --workers 8 --orders 5000
    python examples/worker_fleet.py --url kafka://host:9092      on a cluster of yours (new topics, deleted at the end)

The workers are processes of `multiprocessing` that run `work` of examples/orders_worker.py. Of the orders one in ten is
refused once and billed when it comes again; one in fifty can never be billed and ends among the dead letters. When no
order is left, every worker gets SIGTERM and closes. Then bills and dead letters are read from Kafka and counted. The
exit code is 1 if an order has no bill, a dead letter is missing or is none, or a worker did not close in good order.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import secrets
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

from orders_worker import SUBSCRIPTION, Work, dead_letter_topic, work

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import EmbeddedBrokerError, open_broker

BUSY_EVERY = 10
DEAD_EVERY = 50
GIVE_UP_S = 120.0


def main() -> int:
    chosen = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that workers are stopped then, too
    orders = [order(number) for number in range(chosen.orders)]
    try:
        with _cluster(chosen.url) as url, AdminClient(url) as admin, _topics(admin) as (topic, bills):
            with _fleet(url, topic, bills, chosen.workers) as workers:
                _until(lambda: len(_members(admin, topic)) >= chosen.workers, workers, "all workers to be there")
                print(f"{chosen.workers} workers share {topic}", flush=True)
                _publish(url, topic, orders)
                _until(lambda: _left(admin, topic) == 0, workers, "the last order to be done")
                exit_codes = _stop(workers)
            found = _read(url, bills, dead_letter_topic(topic, SUBSCRIPTION))
    except (EmbeddedBrokerError, pulsar.PulsarException, WorkerDied, TimeoutError) as failure:
        print(f"{type(failure).__name__}: {failure}", file=sys.stderr)
        return 2
    return 0 if show_verdict(orders, found, exit_codes) else 1


def order(number: int) -> dict[str, Any]:
    """See `bill_for`: the printer is busy for one in ten at first, one in fifty has no price at all."""
    if number % DEAD_EVERY == DEAD_EVERY - 1:
        return {"id": number}
    return {"id": number, "cents": 100 + number, "busy": number % BUSY_EVERY == 0}


# The fleet ------------------------------------------------------------------------------------------------------------


class WorkerDied(Exception):
    """A worker ended that nobody told to."""


@contextmanager
def _fleet(url: str, topic: str, bills: str, count: int) -> Iterator[list[BaseProcess]]:
    """So many workers, each in a process of its own; whoever still runs at the end is stopped."""
    context = multiprocessing.get_context("spawn")  # nothing of this process's clients and threads is inherited
    workers: list[BaseProcess] = []
    try:
        for number in range(1, count + 1):
            name = f"worker-{number}"
            job = Work(url, topic, SUBSCRIPTION, bills, name)
            worker = context.Process(target=work, args=(job,), name=name)
            worker.start()
            workers.append(worker)
        yield workers
    finally:
        _stop(workers)


def _stop(workers: list[BaseProcess]) -> list[int | None]:
    """SIGTERM for all, then wait for each; SIGKILL for one that has not closed in two minutes. Gives the exit codes."""
    for worker in workers:
        worker.terminate()
    deadline_s = time.monotonic() + GIVE_UP_S
    for worker in workers:
        worker.join(max(0.0, deadline_s - time.monotonic()))
        if worker.exitcode is None:
            worker.kill()
            worker.join()
    return [worker.exitcode for worker in workers]


def _until(happened: Callable[[], bool], workers: list[BaseProcess], what: str) -> None:
    """Look four times a second; raises WorkerDied, or TimeoutError after so long that a slow machine is no excuse."""
    pause, began_s = threading.Event(), time.monotonic()
    while not happened():
        for worker in workers:
            if worker.exitcode is not None:
                raise WorkerDied(f"{worker.name} ended by itself with status {worker.exitcode}")
        if time.monotonic() - began_s > GIVE_UP_S:
            raise TimeoutError(f"gave up waiting for {what} after {GIVE_UP_S:.0f} s")
        pause.wait(0.25)


def _members(admin: AdminClient, topic: str) -> tuple[str, ...]:
    return admin.subscription_stats(topic, SUBSCRIPTION).consumers


def _left(admin: AdminClient, topic: str) -> int:
    """What is neither billed nor buried yet, by what was saved: workers save once a second."""
    return admin.subscription_stats(topic, SUBSCRIPTION).backlog


# Orders, bills, dead letters ------------------------------------------------------------------------------------------


@contextmanager
def _cluster(url: str | None) -> Iterator[str]:
    """That of `--url`, or that of POK_BOOTSTRAP, or a broker for as long as this runs."""
    if url is not None:
        yield url
        return
    with open_broker() as broker:
        yield f"kafka://{broker.bootstrap}"


@contextmanager
def _topics(admin: AdminClient) -> Iterator[tuple[str, str]]:
    """Two new topics, for orders and for bills, each of one partition; deleted at the end, and the dead letters'."""
    tag = secrets.token_hex(3)
    topic, bills = (f"persistent://public/default/{name}-{tag}" for name in ("orders", "bills"))
    with ExitStack() as stack:
        stack.callback(_delete, admin, dead_letter_topic(topic, SUBSCRIPTION))
        for name in (topic, bills):
            admin.create_topic(name)
            stack.callback(_delete, admin, name)
        admin.create_subscription(topic, SUBSCRIPTION, from_earliest=True)
        yield topic, bills


def _delete(admin: AdminClient, topic: str) -> None:
    with suppress(pulsar.TopicNotFound):  # without a dead letter there is no topic of them
        admin.delete_topic(topic, force=True)


def _publish(url: str, topic: str, orders: list[dict[str, Any]]) -> None:
    with closing(pulsar.Client(url)) as client:
        producer = client.create_producer(topic)
        for each in orders:
            producer.send(json.dumps(each).encode())


@dataclass(frozen=True)
class Found:
    """What lies in Kafka in the end."""

    bills: list[tuple[int, str]]
    """Order and worker of each bill."""
    dead: list[int]


def _read(url: str, bills: str, dead: str) -> Found:
    with closing(pulsar.Client(url)) as client:
        return Found(
            [(json.loads(message.data())["id"], message.properties()["worker"]) for message in _all_of(client, bills)],
            [json.loads(message.data())["id"] for message in _all_of(client, dead)],
        )


def _all_of(client: pulsar.Client, topic: str) -> Iterator[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        yield reader.read_next(int(GIVE_UP_S * 1000))


# The verdict ----------------------------------------------------------------------------------------------------------


def show_verdict(orders: list[dict[str, Any]], found: Found, exit_codes: list[int | None]) -> bool:
    """Print what was counted; True when it is what it should be.

    A bill that was written twice is told and is no failure: a message may be delivered twice when its partition changes
    hands.
    """
    billable = {each["id"] for each in orders if "cents" in each}
    hopeless = {each["id"] for each in orders} - billable
    billed = Counter(number for number, _ in found.bills)
    for worker, many in sorted(Counter(worker for _, worker in found.bills).items()):
        print(f"{worker}: {many} bills")
    print(f"bills written twice: {sum(many - 1 for many in billed.values())}")
    rows = [
        ("orders with a bill", len(billable & billed.keys()), len(billable)),
        ("bills of no such order", len(billed.keys() - billable), 0),
        ("orders among the dead letters", len(hopeless & set(found.dead)), len(hopeless)),
        ("dead letters that should be none", len(set(found.dead) - hopeless), 0),
        ("workers that closed in good order", exit_codes.count(0), len(exit_codes)),
    ]
    for what, got, expected in rows:
        print(f"{what}: {got} of {expected}" + ("" if got == expected else "  WRONG"))
    return all(got == expected for _, got, expected in rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--url", help="kafka://host:port; left out: the cluster of POK_BOOTSTRAP, or a broker of its own"
    )
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="1 to 64")
    parser.add_argument("--orders", type=int, default=400, metavar="N", help=f"{DEAD_EVERY} or more")
    chosen = parser.parse_args()
    if not 1 <= chosen.workers <= 64:
        parser.error(f"--workers {chosen.workers}: 1 to 64")
    if chosen.orders < DEAD_EVERY:
        parser.error(f"--orders {chosen.orders}: {DEAD_EVERY} are the fewest with one that cannot be billed")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
