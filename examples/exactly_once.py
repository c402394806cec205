"""Consume, process, produce, exactly once: the flights of 2013, with a kill -9 between a send and its commit.

    python examples/exactly_once.py                  20,000 of the flights, about a minute
    python examples/exactly_once.py --flights 336776 all of them
    POK_BOOTSTRAP=host:9092 python examples/exactly_once.py    on a cluster of yours (new topics, deleted at the end)

A worker reads flights from one topic and writes one message for each to another, keyed by the airport where it landed.
What it writes and what it acknowledges belongs to one transaction for each batch. The first worker kills itself half
way, when a batch was written and acknowledged but not committed; a second one goes on. At the end a plain Kafka
consumer reads everything that lies in the second topic, goes by the commit and abort markers, and counts: every flight
once, each airport as often as the data frame says. The exit code is 1 if a number disagrees.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition
from flights.data import as_messages, load_flights
from flights.publish import publish
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import BrokerKind, EmbeddedBrokerError, ExternalBroker, open_broker

PARTITIONS = 4
SUBSCRIPTION = "airports"
BATCH = 200
TIMEOUT_MS = 20_000
GIVE_UP_S = 120.0

console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)


# The worker: what a program of yours would do -------------------------------------------------------------------------


def work(service_url: str, source: str, target: str, kill_after: int) -> None:
    """Go on until standard input ends. With `kill_after`: after so many flights die in the middle of a batch."""
    client = pulsar.Client(service_url, enable_transaction=True)
    client.close_on_signals()  # told to end, it leaves at once and does not look like a dead one to other workers
    consumer = client.subscribe(source, SUBSCRIPTION, pulsar.ConsumerType.Shared)
    producer = client.create_producer(target, block_if_queue_full=True)
    done = 0
    with ThreadPoolExecutor(32) as threads:  # each acknowledgement waits until it is durable: many at a time
        while not _input_ended():
            batch = receive_batch(consumer)
            if not batch:
                continue
            try:
                with client.new_transaction(TIMEOUT_MS) as transaction:
                    for message in batch:
                        flight = json.loads(message.data())
                        landed = json.dumps({"id": flight["id"], "airport": flight["dest"]}).encode()
                        producer.send_async(landed, None, partition_key=flight["dest"], txn=transaction)
                    list(threads.map(lambda message, txn=transaction: consumer.acknowledge(message, txn=txn), batch))
                    if kill_after and done + len(batch) >= kill_after:
                        producer.flush()  # so that the messages do lie in the topic, and nobody may ever see them
                        os.kill(os.getpid(), signal.SIGKILL)
            except pulsar.PulsarException as failure:  # it was aborted: what was acknowledged in it comes again, too
                print(f"a batch of {len(batch)} is done again: {failure}", file=sys.stderr)
                for message in batch:
                    consumer.negative_acknowledge(message)
            else:
                done += len(batch)
    client.close()


def receive_batch(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    """Up to 200 messages; fewer when no more come for a moment."""
    found: list[pulsar.Message] = []
    while len(found) < BATCH:
        try:
            found.append(consumer.receive(timeout_millis=200))
        except pulsar.Timeout:
            break
    return found


def _input_ended() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not sys.stdin.read(1)


# The proof: what lies in Kafka, read without this project -------------------------------------------------------------


@dataclass(frozen=True)
class InKafka:
    """What a topic holds: airport and flight of each message, by how its transaction ended."""

    committed: list[tuple[str, int]]
    aborted: list[tuple[str, int]]
    undecided: int


def read_with_plain_kafka(bootstrap: str, kafka_topic: str) -> InKafka:
    """A message belongs to the transaction in its header; that one's marker, behind it, says what became of it."""
    messages: list[tuple[bytes, tuple[str, int]]] = []
    ended: dict[bytes, set[bytes]] = {}
    for partition in range(PARTITIONS):
        for value, headers in _everything_in(bootstrap, kafka_topic, partition):
            transaction, marker = headers.get("__pulsar.txn", b""), headers.get("__pulsar.marker")
            if marker is not None:
                ended.setdefault(transaction, set()).add(marker)
            else:
                landed = json.loads(value)
                messages.append((transaction, (landed["airport"], landed["id"])))
    return InKafka(
        [landed for transaction, landed in messages if ended.get(transaction) == {b"txn_commit"}],
        [landed for transaction, landed in messages if ended.get(transaction) == {b"txn_abort"}],
        sum(len(ended.get(transaction, ())) != 1 for transaction, _ in messages),
    )


def _everything_in(bootstrap: str, kafka_topic: str, partition: int) -> Iterator[tuple[bytes, dict[str, bytes]]]:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "exactly-once-proof", "enable.auto.commit": False,
        "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(kafka_topic, partition, 0)])
    try:
        while True:
            record = consumer.poll(GIVE_UP_S)
            if record is None:
                raise TimeoutError(f"{kafka_topic}-{partition} could not be read in {GIVE_UP_S:.0f} s")
            error = record.error()
            if error is None:
                headers = {name: value for name, value in record.headers() or [] if isinstance(value, bytes)}
                yield record.value() or b"", headers
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise RuntimeError(error.str())
    finally:
        consumer.close()


def read_with_a_reader(service_url: str, target: str, count: int) -> int:
    """How many messages a reader of this project is given, one more at most than there should be."""
    client = pulsar.Client(service_url)
    readers = [client.create_reader(name, pulsar.MessageId.earliest) for name in client.get_topic_partitions(target)]
    seen = 0
    for reader in readers:
        while seen <= count and reader.has_message_available():
            reader.read_next(int(GIVE_UP_S * 1000))
            seen += 1
    client.close()
    return seen


# The demonstration ----------------------------------------------------------------------------------------------------


def main() -> int:
    options = _options()
    flights = load_flights(options.flights)
    try:
        with set_up(options.broker) as (bootstrap, source, target, admin):
            service_url = f"kafka://{bootstrap}"
            console.rule(f"[bold]2  {len(flights):,} flights are published")
            client = pulsar.Client(service_url)
            published = publish(client, source, as_messages(flights), lambda count: None)
            client.close()
            console.print(f"{published.count():,} in {published.seconds:.1f} s")
            consume_with_a_kill(service_url, source, target, admin, len(flights))
            console.rule("[bold]4  what lies in Kafka, read with confluent-kafka alone")
            found = read_with_plain_kafka(bootstrap, admin.topic_stats(target).kafka_topic)
            seen = read_with_a_reader(service_url, target, len(flights))
            return 0 if show_verdict(flights["dest"].value_counts().to_dict(), found, seen, len(flights)) else 1
    except (EmbeddedBrokerError, pulsar.PulsarException, TimeoutError) as error:
        console.print(f"[red]{type(error).__name__}: {error}")
        return 2


@contextmanager
def set_up(kind: BrokerKind) -> Iterator[tuple[str, str, str, AdminClient]]:
    """A broker and two new topics: (bootstrap, source, target, admin)."""
    with ExitStack() as stack:
        console.rule("[bold]1  a broker and two topics")
        broker = stack.enter_context(open_broker(kind, progress=console.print))
        admin = stack.enter_context(AdminClient(f"kafka://{broker.bootstrap}"))
        tag = secrets.token_hex(3)
        source, target = (f"persistent://public/default/{name}-{tag}" for name in ("departed", "landed"))
        for topic in (source, target):
            admin.create_partitioned_topic(topic, PARTITIONS)
            if isinstance(broker, ExternalBroker):
                stack.callback(admin.delete_topic, topic, force=True)
        admin.create_subscription(source, SUBSCRIPTION, from_earliest=True)
        console.print(f"{source} -> {target}")
        yield broker.bootstrap, source, target, admin


def consume_with_a_kill(service_url: str, source: str, target: str, admin: AdminClient, count: int) -> None:
    console.rule(f"[bold]3  a transaction for each {BATCH} flights, and a kill -9 in one of them")
    columns = (TextColumn("acknowledged"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=count)

        def acknowledged() -> int:
            done = count - admin.subscription_stats(source, SUBSCRIPTION).backlog
            progress.update(bar, completed=done)
            return done

        with _worker(service_url, source, target, count // 2) as first:
            _until(lambda: (acknowledged(), first.poll() is not None)[1], "the first worker to kill itself")
        progress.console.print(
            f"worker {first.pid} ended with status {first.returncode}: SIGKILL in an open transaction, which will be "
            f"aborted {TIMEOUT_MS // 1000} s after it began"
        )
        with _worker(service_url, source, target, 0) as second:
            _until(lambda: acknowledged() >= count or second.poll() is not None, "the second worker to be done")
            if second.poll() is not None:
                raise TimeoutError(f"worker {second.pid} ended by itself with status {second.returncode}")


@contextmanager
def _worker(service_url: str, source: str, target: str, kill_after: int) -> Iterator[subprocess.Popen[bytes]]:
    """This program once more, as a worker; at the end it is asked to leave."""
    command = [sys.executable, __file__, "--worker", service_url, source, target, str(kill_after)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield process
        process.communicate(timeout=GIVE_UP_S)
    finally:
        process.kill()
        process.wait()


def _until(happened: Callable[[], bool], what: str) -> None:
    """Look twice a second, for as long as it takes a slow machine."""
    pause, began_s = threading.Event(), time.monotonic()
    while not happened():
        if time.monotonic() - began_s > 5 * GIVE_UP_S:
            raise TimeoutError(f"gave up waiting for {what}")
        pause.wait(0.5)


def show_verdict(airports: dict[str, int], found: InKafka, seen: int, count: int) -> bool:
    """The numbers beside those of the data frame; True when all agree."""
    landed = Counter(airport for airport, _ in found.committed)
    once = Counter(flight for _, flight in found.committed)
    rows = [
        ("committed messages", len(found.committed), count),
        ("different flights in them", len(once), count),
        ("flights written twice", sum(many > 1 for many in once.values()), 0),
        ("airports", len(landed), len(airports)),
        ("airports with another count", sum(landed[name] != many for name, many in airports.items()), 0),
        ("messages of undecided transactions", found.undecided, 0),
        ("what a reader is given", seen, count),
    ]
    table = Table()
    for column in ("", "this run", "data frame", ""):
        table.add_column(column, justify="right" if column else "left")
    for what, got, expected in rows:
        table.add_row(what, f"{got:,}", f"{expected:,}", "[green]=" if got == expected else "[bold red]DIFFERS")
    table.add_row("messages of aborted transactions", f"{len(found.aborted):,}", "", "")
    console.print(table)
    right = all(got == expected for _, got, expected in rows)
    if not found.aborted:
        console.print("[red]no message of the killed worker's transaction is in the log: the kill proved nothing")
        return False
    console.print("[bold green]Exactly once." if right else "[bold red]Numbers disagree.")
    return right


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--flights", type=int, default=20_000, metavar="N", help="how many (1000 to 336776)")
    parser.add_argument("--broker", choices=["auto", "embedded", "docker", "external"], default="auto")
    options = parser.parse_args()
    if options.flights < 1000:
        parser.error(f"--flights {options.flights}: 1000 are the fewest that have a middle to be killed in")
    return options


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        with suppress(pulsar.AlreadyClosed):  # a signal came, see `work`
            work(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
        sys.exit(0)
    sys.exit(main())
