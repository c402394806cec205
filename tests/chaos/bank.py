"""Sources, targets and workers of transactions; who takes over what they left; the verdict, from plain Kafka reads."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psutil

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_LOG, TRANSACTION_PENDING_ACK
from tests.chaos.bank_worker import BankOrders
from tests.integration.transaction_support import Seen, data_of, log_record, read_all
from tests.steps import Unique
from tests.waiting import until

PATIENCE_S: Final = 150.0
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Deed:
    """One line of a worker's evidence."""

    kind: str
    text: str

    @property
    def txn(self) -> TxnId:
        most, least = self.text.split()[0].split(":")
        return TxnId(int(most), int(least))


class BankWorker:
    """One worker process, as the test holds it."""

    def __init__(self, orders: BankOrders, log: Path) -> None:
        self.orders = orders
        self._log = log
        with log.open("wb") as errors:
            command = [sys.executable, "-m", "tests.chaos.bank_worker", json.dumps(asdict(orders))]
            self._process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=errors)

    def deeds(self) -> list[Deed]:
        file = Path(self.orders.evidence)
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        words = (line.decode().split(" ", 2) for line in lines)
        return [Deed(kind, text) for kind, _, text in words]

    def said(self, kind: str) -> list[Deed]:
        return [deed for deed in self.deeds() if deed.kind == kind]

    def until_cut(self) -> None:
        """Wait until it got the signal of its orders."""
        self._until(self._is_cut, f"is cut short {self.orders.cut}")

    def _is_cut(self) -> bool:
        if not self.said("z"):
            return False
        if self.orders.signal_name == "SIGKILL":
            return self._process.poll() is not None
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def until_it_went_on(self) -> None:
        """Wait until a stopped and continued one has done the step before or after which it was stopped."""
        last = "took" if self.orders.cut.startswith("before") else "went on"
        self._until(lambda: any(deed.text.startswith(last) for deed in self.said("z")), "went on")

    def _until(self, condition: Callable[[], object], what: str) -> None:
        def holds() -> bool:
            if condition():
                return True
            assert self._process.poll() is None or self.orders.signal_name == "SIGKILL", self._tail()
            return False

        until(holds, lambda: f"worker {self.orders.name} {what}\n{self._tail()}", PATIENCE_S)

    def _tail(self) -> str:
        return f"{self.deeds()[-8:]}\n{self._log.read_text()[-3000:]}"

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


@dataclass
class Outcome:
    """One transaction in the targets, as plain Kafka clients find it."""

    values: Counter[tuple[str, bytes]] = field(default_factory=Counter)
    """Its messages: target, payload."""
    ended: dict[str, set[bool]] = field(default_factory=dict)
    """By target: which markers there are."""


class BankStage:
    """A source for each worker, two targets for all. Ends everything it started."""

    def __init__(self, service_url: str, directory: Path, unique: Unique) -> None:
        self.url = service_url
        self.bootstrap = service_url.removeprefix("kafka://")
        self._directory = directory
        self._unique = unique
        self._numbers = itertools.count()
        self.targets = (unique("first"), unique("second"))
        self.sources: dict[str, list[bytes]] = {}
        self.workers: list[BankWorker] = []
        self._clients: list[Any] = []

    def __enter__(self) -> BankStage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        for client in self._clients:
            client.close()

    def client(self) -> Any:
        made = pulsar.Client(self.url, enable_transaction=True, operation_timeout_seconds=90)
        self._clients.append(made)
        return made

    def fill(self, messages: int) -> str:
        """A new source with so many messages, each another one."""
        number = next(self._numbers)
        source = self._unique(f"source-{number}")
        client = pulsar.Client(self.url, operation_timeout_seconds=90)
        producer = client.create_producer(source)
        payloads = [f"{number}/{place}".encode() for place in range(messages)]
        for payload in payloads:
            producer.send(payload)
        client.close()
        self.sources[source] = payloads
        return source

    def start(self, sources: Iterable[str], **orders: Any) -> list[BankWorker]:
        return [self.start_one(source, **orders) for source in sources]

    def start_one(self, source: str, **orders: Any) -> BankWorker:
        name = f"w{len(self.workers)}"
        evidence = str(self._directory / f"{name}.evidence")
        given = BankOrders(self.url, source, self.targets, evidence, name=name)
        worker = BankWorker(replace(given, **orders), self._directory / f"{name}.log")
        self.workers.append(worker)
        return worker

    # The end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Process what is left of every source, in transactions, until each message stands in both targets."""
        client = self.client()
        stopping = threading.Event()
        producers = [client.create_producer(target) for target in self.targets]
        with ThreadPoolExecutor(len(self.sources)) as pool:
            running = [pool.submit(self._finish_one, client, producers, source, stopping) for source in self.sources]
            try:
                until(lambda: not self._missing(), self._what_is_missing, PATIENCE_S)
                until(lambda: not self.unfinished(), "no transaction is open", PATIENCE_S)
            finally:
                stopping.set()
            for each in running:
                each.result()

    def _finish_one(self, client: Any, producers: list[Any], source: str, stopping: threading.Event) -> None:
        consumer = client.subscribe(
            source, "bank", consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest, negative_ack_redelivery_delay_ms=100,
        )  # fmt: skip
        while not stopping.is_set():
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            try:
                with client.new_transaction(120_000) as txn:
                    for producer in producers:
                        producer.send(message.data(), txn=txn)
                    consumer.acknowledge(message, txn=txn)
            except pulsar.PulsarException:
                with suppress(pulsar.PulsarException):
                    consumer.negative_acknowledge(message)

    def _missing(self) -> list[bytes]:
        committed = self.committed()
        return [
            payload
            for payloads in self.sources.values()
            for payload in payloads
            if any(not committed[target, payload] for target in self.targets)
        ]

    def _what_is_missing(self) -> str:
        return f"all messages are in both targets: {self._missing()} are not; {self.unfinished()} are open"

    # What plain Kafka clients see -----------------------------------------------------------------------------------

    def outcomes(self) -> dict[TxnId, Outcome]:
        found: dict[TxnId, Outcome] = {}
        for target in self.targets:
            over: set[TxnId] = set()
            for seen in self._data(target):
                assert seen.txn is not None, f"{target} holds a record of no transaction: {seen}"
                outcome = found.setdefault(seen.txn, Outcome())
                if seen.ended is not None:
                    over.add(seen.txn)
                    outcome.ended.setdefault(target, set()).add(seen.ended)
                elif seen.txn not in over:  # what comes behind its marker is void
                    outcome.values[target, seen.value or b""] += 1
        return found

    def _data(self, target: str) -> list[Seen]:
        return data_of(self.bootstrap, kafka_topic(TopicName.parse(target)))

    def committed(self) -> Counter[tuple[str, bytes]]:
        """How often each message stands in each target, committed there."""
        found: Counter[tuple[str, bytes]] = Counter()
        for outcome in self.outcomes().values():
            for (target, payload), count in outcome.values.items():
                if True in outcome.ended.get(target, ()):
                    found[target, payload] += count
        return found

    def unfinished(self) -> list[str]:
        """What the coordinators' logs hold of transactions in our topics that are not over."""
        ours = {str(TopicName.parse(name)) for name in (*self.targets, *self.sources)}
        found = []
        for state in self.coordinators():
            for transaction in state.transactions():
                topics = {each.topic for each in transaction.partitions}
                topics |= {each.topic for each in transaction.subscriptions}
                if not transaction.finished and topics & ours:
                    found.append(f"{transaction.id} {transaction.status.value}")
        return found

    def coordinators(self) -> list[CoordinatorState]:
        states = []
        for number in range(TRANSACTION_LOG.partitions):
            state = CoordinatorState(number)
            for message in read_all(self.bootstrap, Instance().state_topic(TRANSACTION_LOG), number):
                state.apply(log_record(message))
            states.append(state)
        return states

    def held(self) -> list[str]:
        """What the pending-ack topic holds of our sources for transactions."""
        found = []
        for source in map(str, map(TopicName.parse, self.sources)):
            entries = PendingAckLog()
            partition = TRANSACTION_PENDING_ACK.partition_for(source)
            for message in read_all(self.bootstrap, Instance().state_topic(TRANSACTION_PENDING_ACK), partition):
                entries.apply(log_record(message))
            for name, acks in entries.cursors().items():
                if name.topic == source:
                    found += [
                        f"{source} for {txn}, which ended {end and end.outcome.name}"
                        for life, log in acks.lives.items()
                        for txn in log.transactions()
                        if acks.counted(life, txn)
                        for end in [acks.ends.get(txn)]
                    ]
        return found

    def judge(self) -> None:
        """All or nothing, once, and nobody was told otherwise."""
        outcomes = self.outcomes()
        states = self.coordinators()
        for txn, outcome in outcomes.items():
            kinds = set().union(*outcome.ended.values()) if outcome.ended else set()
            assert len(kinds) == 1, f"{txn} has markers {outcome.ended}"
            if kinds == {True}:
                assert set(outcome.ended) == set(self.targets), f"{txn} is committed in {list(outcome.ended)} only"
                by_target = [{p for t, p in outcome.values if t == target} for target in self.targets]
                assert by_target[0] == by_target[1], f"{txn} is committed with {outcome.values}"
            known = states[txn.coordinator].transaction(txn)
            if known is not None:
                assert known.finished
                assert (known.status.value == "COMMITTED") is (kinds == {True}), f"{txn}: {known.status} and {kinds}"
        payloads = list(itertools.chain.from_iterable(self.sources.values()))
        expected = Counter(itertools.product(self.targets, payloads))
        assert self.committed() == expected
        until(lambda: not self.held(), lambda: f"nothing is held any more, but {self.held()}", PATIENCE_S)
        for worker in self.workers:
            for kind, committed in (("d", True), ("u", False)):
                for deed in worker.said(kind):
                    ends = outcomes[deed.txn].ended
                    assert all(kinds == {committed} for kinds in ends.values()), f"{deed} and {ends}"
        self._readers_see(expected)

    def tally(self) -> str:
        outcomes = self.outcomes().values()
        committed = sum(any(True in kinds for kinds in outcome.ended.values()) for outcome in outcomes)
        return f"{committed} transactions committed, {len(outcomes) - committed} aborted"

    def _readers_see(self, expected: Counter[tuple[str, bytes]]) -> None:
        client = pulsar.Client(self.url, operation_timeout_seconds=90)
        try:
            seen: Counter[tuple[str, bytes]] = Counter()
            for target in self.targets:
                reader = client.create_reader(target, pulsar.MessageId.earliest)
                while reader.has_message_available():
                    seen[target, reader.read_next(60_000).data()] += 1
            assert seen == expected
        finally:
            client.close()
