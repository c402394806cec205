"""A topic, its publisher, its subscriptions with their workers, and the verdict at the end."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient as KafkaAdmin

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.checkpoints import CheckpointFold
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import cursor_identity
from pulsar_on_kafka.service.housekeeping.idle_groups import IdleGroups, checkpoint_of
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import DEFAULT_ENTRIES_PER_LEDGER
from pulsar_on_kafka_mapping.names.subscription_group import group_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka_mapping.state.state_topics import CURSOR_CHECKPOINTS
from tests.chaos.cleaner import wait_until_compacted
from tests.chaos.evidence import Position
from tests.chaos.outside import Entries, Sample, Sampler, read_topic
from tests.chaos.processes import WorkerProcess
from tests.chaos.verdict import Case, Verdict
from tests.chaos.worker import Orders, position_of, residue
from tests.foreign_records import ForeignProducer, some_absurd_records
from tests.kafka_records import place_of
from tests.waiting import PATIENCE_S, until

SENTINEL = b"sentinel"
_PATIENCE_MS = 300_000
"""A broker that is restarted on a busy machine is away for longer than a call usually takes."""
ORDERED = ("Exclusive", "Failover")


class Stage:
    """One topic of one broker. Ends everything it started."""

    def __init__(self, service_url: str, directory: Path, topic: str, partitions: int, **creation: Any) -> None:
        self.url = service_url
        self.bootstrap = service_url.removeprefix("kafka://")
        self.directory = directory
        self.topic = topic
        self.partitions = partitions
        self.kafka_topic = kafka_topic(TopicName.parse(topic))
        self.client = pulsar.Client(service_url, operation_timeout_seconds=_PATIENCE_MS // 1000)
        self.admin = AdminClient(service_url, operation_timeout_seconds=_PATIENCE_MS // 1000)
        self._creation = creation
        self._subscriptions: list[Stand] = []
        self._publishers: list[Publisher] = []

    def __enter__(self) -> Stage:
        if self._creation.get("create", True):
            self.admin.create_partitioned_topic(
                self.topic, self.partitions, entries_per_ledger=self._creation.get("entries_per_ledger")
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for publisher in self._publishers:
            publisher.stop()
        for subscription in self._subscriptions:
            subscription.close()
        self.client.shutdown()
        self.admin.close()

    def publish(
        self, count: int | None = None, *, pace_ms: float = 0.0, name: str = "p", batch: int = 1, keys: int = 0
    ) -> Publisher:
        """Start sending `count` messages from a thread of this process, in batches of `batch`, with so many keys.

        Without a count messages come until `stop`: for tests that wait for a consumer to go on, on any machine.
        """
        publisher = Publisher(self.client, self.topic, count, pace_ms, name, batch, keys)
        self._publishers.append(publisher)
        return publisher

    def write_absurd_records(self, chance: Random, count: int) -> None:
        """Write records as foreign producers may: some that consumers can read, and some that they leave out."""
        producer = ForeignProducer(self.bootstrap)
        producer.send(self.kafka_topic, some_absurd_records(chance, count), chance.randrange(self.partitions))
        producer.close()

    def subscription(self, type_: str = "Shared", name: str = "sub") -> Stand:
        stand = Stand(self, type_, name)
        self._subscriptions.append(stand)
        return stand

    def state_place(self) -> tuple[str, str, int]:
        """Where `Sample.acknowledged` finds segments."""
        size = self._creation.get("entries_per_ledger") or DEFAULT_ENTRIES_PER_LEDGER
        return self.bootstrap, str(TopicName.parse(self.topic)), size

    def everything(self) -> dict[Position, bytes]:
        """What is in the topic, sentinels too."""
        return read_topic(self.bootstrap, self.kafka_topic, self.partitions)

    def sent(self) -> dict[Position, bytes]:
        return {position: value for position, value in self.everything().items() if value != SENTINEL}

    def check_publishing(self, sent: dict[Position, bytes]) -> None:
        """Every confirmed message is there once, and each publisher's order is kept in each partition."""
        there: dict[str, list[int]] = {}
        for (partition, _, _), value in sorted(sent.items()):
            if b":" not in value:
                continue  # a foreign producer's
            name, _, number = value.decode().partition(":")
            there.setdefault(f"{name}/{partition}", []).append(int(number))
        for stream, numbers in there.items():
            assert numbers == sorted(set(numbers)), f"{stream}: out of order or double"
        for publisher in self._publishers:
            own = [found for stream, found in there.items() if stream.startswith(f"{publisher.name}/")]
            lost = sorted(publisher.confirmed.difference(*own))
            assert not lost, f"{publisher.name}: {len(lost)} of {publisher.sent} confirmed and not there: {lost[:5]}"
            assert not publisher.failures, publisher.failures[:3]


class Publisher:
    """Sends `name:0`, `name:1` ... and remembers what was confirmed."""

    def __init__(
        self, client: pulsar.Client, topic: str, count: int | None, pace_ms: float, name: str, batch: int, keys: int
    ) -> None:
        self.name = name
        self.confirmed: set[int] = set()
        self.failures: list[str] = []
        self.sent = 0
        self._client = client
        self._topic = topic
        self._count = count
        self._pace_s = pace_ms / 1000
        self._batching: dict[str, Any] = {"batching_enabled": True, "batching_max_messages": batch} if batch > 1 else {}
        self._keys = keys
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"publisher {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = self._client.create_producer(
            self._topic,
            producer_name=self.name,
            block_if_queue_full=True,
            send_timeout_millis=_PATIENCE_MS,
            **self._batching,
        )
        for number in itertools.count() if self._count is None else range(self._count):
            if self._stopping.is_set():
                break
            key = f"k{number % self._keys}" if self._keys else None
            producer.send_async(f"{self.name}:{number}".encode(), self._confirmed_by(number), partition_key=key)
            self.sent = number + 1
            if self._pace_s:
                self._stopping.wait(self._pace_s)
        producer.flush()
        producer.close()

    def _confirmed_by(self, number: int) -> Callable[[pulsar.Result, Any], None]:
        def answered(result: pulsar.Result, _: object) -> None:
            if result == pulsar.Result.Ok:
                self.confirmed.add(number)
            else:
                self.failures.append(f"{number}: {result}")

        return answered

    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, within_s: float = PATIENCE_S) -> None:
        self._thread.join(within_s)
        assert self.done(), f"publisher {self.name} is at {self.sent} of {self._count}"

    def stop(self, within_s: float = PATIENCE_S) -> None:
        """Send no more, and wait for what is under way."""
        self._stopping.set()
        self._thread.join(within_s)


class Stand:
    """One subscription and the workers on it."""

    def __init__(self, stage: Stage, type_: str, name: str) -> None:
        self.type = type_
        self.workers: list[WorkerProcess] = []
        self._stage = stage
        self._name = name
        self._states: dict[int, tuple[Sample, Entries]] = {}
        self.sampler = Sampler(stage.bootstrap, group_id(stage.kafka_topic, name), stage.kafka_topic, stage.partitions)

    def worker(self, **orders: Any) -> WorkerProcess:
        """A process that is started and not told anything yet; one in four, and whose `apart` is
        true, has a PID namespace of its own."""
        number = len(self.workers)
        apart = bool(orders.pop("apart", number % 4 == 1))
        base = self._stage.directory / f"{self._name}-{number}-{secrets.token_hex(2)}"
        orders = {"type": self.type, "name": f"w{number}", "seed": number, **orders}
        found = WorkerProcess(
            Orders(self._stage.url, self._stage.topic, self._name, f"{base}.evidence", **orders),
            base.with_suffix(".log"),
            apart=apart,
        )
        self.workers.append(found)
        return found

    def warm(self, *workers: WorkerProcess) -> None:
        for worker in workers:
            worker.until(lambda worker=worker: worker.count("w"), "connected")  # type: ignore[misc]

    def join(self, **orders: Any) -> WorkerProcess:
        """A worker that subscribes at once."""
        worker = self.worker(**orders)
        worker.try_to_subscribe()
        worker.until(worker.is_let_in if self.type == "Exclusive" else lambda: worker.count("s"), "subscribed")
        return worker

    def join_many(self, count: int, **orders: Any) -> list[WorkerProcess]:
        workers = [self.worker(**orders) for _ in range(count)]
        for worker in workers:
            worker.try_to_subscribe()
        for worker in workers:
            worker.until(lambda worker=worker: worker.count("s"), "subscribed")  # type: ignore[misc]
        return workers

    def received(self) -> set[Position]:
        return {receipt.position for worker in self.workers for receipt in worker.look().receipts}

    def durable(self) -> set[Position]:
        return {position for worker in self.workers for position in worker.look().durable}

    def acknowledged(self) -> set[Position]:
        return {position for worker in self.workers for position in worker.look().acknowledged}

    def saved(self) -> dict[int, Entries]:
        """What the newest committed states call acknowledged, by partition.

        A process that was killed may have had acknowledgements made durable and not lived to say so.
        """
        newest = {sample.partition: sample for sample in self.sampler.samples}
        for partition, sample in newest.items():
            if partition not in self._states or self._states[partition][0] is not sample:
                self._states[partition] = (sample, sample.acknowledged(*self._stage.state_place()))
        return {partition: entries for partition, (_, entries) in self._states.items()}

    def are_saved(self, positions: Iterable[Position]) -> bool:
        saved = self.saved()
        return all(where.partition in saved and saved[where.partition].has(where) for where in positions)

    def until_durable(self, positions: Iterable[Position], within_s: float = PATIENCE_S) -> None:
        """Until workers have said so of all these, or Kafka does; `within_s` counts from the last that became so."""
        wanted = set(positions)
        until(
            lambda: not (missing := wanted - self.durable()) or self.are_saved(missing),
            lambda: (
                f"{len(wanted)} messages durably acknowledged; missing {len(wanted - self.durable())}, never received "
                f"{len(wanted - self.received())}; {[(w.name, w.look().last('sbxfcol')) for w in self.workers]}"
            ),
            within_s,
            progress=lambda: len(wanted & self.durable()),
        )

    def until_worked_off(self, residues: Iterable[int] = range(9), within_s: float = PATIENCE_S) -> None:
        """Until every message sent so far that is to be acknowledged is, durably."""
        wanted = set(residues)
        self.until_durable({where for where in self._stage.sent() if residue(*where) in wanted}, within_s)

    def verdict(self) -> Verdict:
        """Close the workers that consume, let one more consumer receive what is left, and judge."""
        for worker in self.workers:
            last = worker.look().last("sbcf")
            if worker.alive and not worker.stopped and last is not None and last.kind == "s":
                worker.close()
        remaining = self._remaining()
        self.sampler.close()
        there = self._stage.everything()
        ordered, leased = self.type in ORDERED, self.type != "Exclusive"
        case = Case(self.workers, there, SENTINEL, self.sampler.samples, remaining, ordered=ordered, leased=leased)
        found = case.judge()
        found.samples = self.sampler.answers
        print(f"\n    {self.type}: {found}")
        for line in found.broken:
            print(f"    BROKEN {line}")
        for line in found.evidence:
            print(f"      {line}")
        return found

    def missing_after_compaction(self) -> list[str]:
        """What the newest committed states refer to and the log cleaner has taken away, in the words of a verdict."""
        newest = {sample.partition: sample for sample in self.sampler.samples}
        if all((state := sample.state()) is None or state.marker_offset is None for sample in newest.values()):
            return []  # nothing refers to anything
        wait_until_compacted(self._stage.bootstrap, str(TopicName.parse(self._stage.topic)))
        lost = {p: sample.missing(*self._stage.state_place()[:2]) for p, sample in newest.items()}
        return [f"partition {p}: committed and compacted away: {', '.join(what)}" for p, what in lost.items() if what]

    def forget_group(self, within_s: float) -> None:
        """Have Kafka delete the subscription's group as soon as nobody is in it and a service has copied what it has,
        as one does in the days until Kafka forgets a group by itself."""
        kafka = KafkaAdmin({"bootstrap.servers": self._stage.bootstrap})
        group = group_id(self._stage.kafka_topic, self._name)
        node = self._stage.admin.node
        service = IdleGroups(node.log, node.clock, node.topics, node.subscriptions, node.admin)
        place = CURSOR_CHECKPOINTS.partition_for(str(TopicName.parse(self._stage.topic)))

        def is_copied(deadline: Deadline) -> bool:
            """A service that cannot copy says so in its log, and tries again in its next round."""
            topic = node.topics.open(TopicName.parse(self._stage.topic), deadline)
            copies = LogView(node.log, CURSOR_CHECKPOINTS, place, CheckpointFold, node.clock)
            copied = copies.query(CheckpointFold.all, deadline)
            committed = node.admin.committed(group, topic.kafka_topic, range(self._stage.partitions), deadline)
            subscription = node.subscriptions.find(topic, self._name, deadline)
            assert subscription is not None
            for number, commit in committed.items():
                cursor = cursor_identity(subscription, number)
                known = copied.get((cursor.topic, number, cursor.subscription), {}).values()
                if checkpoint_of(cursor, commit, known, bytes(16)) is not None:
                    return False
            return True

        def forgotten() -> bool:
            deadline = Deadline.after(within_s)
            if node.admin.describe_group(group, deadline).members:
                return False
            service.run(place, deadline)
            if not is_copied(deadline):
                return False
            try:
                kafka.delete_consumer_groups([group])[group].result()
            except KafkaException as refused:
                return bool(refused.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
            return True

        until(forgotten, "Kafka forgets the group", within_s)

    def _remaining(self) -> set[Position]:
        """What the next consumer gets, up to a last message put into every partition."""
        sentinels = self._put_sentinels()
        # It acknowledges nothing, and one consumer gets no more than 50,000 messages then. On Key_Shared a second one
        # would wait for the keys that the first one holds.
        consumers = [self._last_consumer() for _ in range(4 if self.type == "Shared" else 1)]
        found: set[Position] = set()

        def all_seen() -> bool:
            """Who has a partition's last message may be another one than who still has some before it."""
            before, patience_ms = len(found), 1_000 if sentinels <= found else 20
            for consumer in consumers:
                with suppress(pulsar.Timeout):
                    while True:
                        found.add(Position.parse(position_of(consumer.receive(timeout_millis=patience_ms))))
            return patience_ms > 20 and len(found) == before

        def what() -> str:
            return f"the next consumer reaches the end with {len(found)}; missing {sorted(sentinels - found)}"

        until(all_seen, what, 200)
        for consumer in consumers:
            consumer.close()
        return found

    def _last_consumer(self) -> pulsar.Consumer:
        """Where an Exclusive one was killed apart, Kafka's session of it is waited for."""
        let_in: list[pulsar.Consumer] = []

        def subscribed() -> bool:
            with suppress(pulsar.ConsumerBusy):
                let_in.append(
                    self._stage.client.subscribe(
                        self._stage.topic,
                        self._name,
                        consumer_type=pulsar.ConsumerType[self.type],
                        receiver_queue_size=10_000,
                        initial_position=pulsar.InitialPosition.Earliest,
                    )
                )
            return bool(let_in)

        until(subscribed, "the last consumer is let in")
        return let_in[0]

    def _put_sentinels(self) -> set[Position]:
        producer = Producer({"bootstrap.servers": self._stage.bootstrap, "enable.idempotence": True})
        placed: set[Position] = set()
        for partition in range(self._stage.partitions):
            producer.produce(
                self._stage.kafka_topic,
                SENTINEL,
                partition=partition,
                on_delivery=lambda error, message: placed.add(Position(*place_of(message))),
            )
        assert producer.flush(20) == 0
        return placed

    def close(self) -> None:
        with ThreadPoolExecutor(max(1, len(self.workers))) as pool:
            list(pool.map(WorkerProcess.end, self.workers))
        self.sampler.close()
