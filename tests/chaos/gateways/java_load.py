"""Pulsar's Java client on a gateway (`Load.java`): acknowledgements in every order, and transactions."""

from __future__ import annotations

import json
import subprocess
import threading
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.subscription_group import group_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from tests.builds import Missing
from tests.chaos.evidence import Position
from tests.chaos.gateways.fleet import Fleet, Loads, Receipt, check_none_again, longest_gap_s
from tests.chaos.outside import Sampler, read_topic
from tests.integration.gateway.languages import java_program
from tests.programs import ROOT, kill_program
from tests.waiting import until

SOURCE: Final = Path(__file__).with_name("Load.java")
_LOGGING: Final = ROOT / "tests" / "compat" / "pulsar_standalone" / "log4j2.xml"
_SWITCHES: Final = 8
"""Of the active consumer, by one fault: its topic goes elsewhere and comes back, with what waits in clients."""
_RARER: Final = 20
"""Transactions are that much fewer than messages."""
_IN_CLIENT: Final = 2
"""Messages that wait in a client whose queue has one place."""

Event = dict[str, Any]


def _at(event: Event) -> float:
    at: float = event["at"]
    return at


class JavaProgram:
    """The program, and what it wrote down, by load and kind of event."""

    def __init__(self, address: str, topics: dict[str, str], log: Path) -> None:
        self.events: dict[str, dict[str, list[Event]]] = {kind: defaultdict(list) for kind in topics}
        self._log = log
        self._journal = log.with_suffix(".jsonl")
        told = [f"{kind}={topic}" for kind, topic in topics.items()]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*java_program(SOURCE, f"-Dlog4j2.configurationFile={_LOGGING}"), address, *told],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        self._finishing = False

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._journal.open("w") as journal:  # of a test that failed, pytest keeps it
            for line in self._process.stdout:
                if line.startswith('{"at":'):
                    journal.write(line)
                    event = json.loads(line)
                    event["at"] /= 1e9
                    self.events[event["load"]][event["did"]].append(event)

    def finish(self) -> None:
        """Have it send no more; a second call does nothing."""
        assert self._process.stdin is not None
        if not self._finishing:
            self._finishing = True
            self._process.stdin.write("finish\n")
            self._process.stdin.flush()

    def check(self) -> None:
        """It lives, and so do all its threads."""
        died = [each for events in self.events.values() for each in events["died"]]
        assert not died, died
        assert self._process.poll() is None, self._log.read_text()[-3000:]

    def close(self) -> None:
        """A second call does nothing."""
        kill_program(self._process, self._listening)


class JavaLoad:
    """What one kind of `Load.java` does, as far as it is alike: messages go to a topic and come from it."""

    def __init__(self, fleet: Fleet, program: JavaProgram, kind: str, topic: str) -> None:
        self.topic = topic
        self._kind = kind
        self._program = program
        self._events = program.events[kind]
        self._admin: AdminClient = fleet.admin
        self._bootstrap = fleet.bootstrap
        self._name = kafka_topic(TopicName.parse(topic))

    def said(self, did: str) -> list[Event]:
        return list(self._events[did])

    def done(self, since: float) -> int:
        self._program.check()
        return self._said_since("received", since)

    def _said_since(self, did: str, since: float) -> int:
        events = self.said(did)
        return len(events) - bisect_right(events, since, key=_at)

    def finish(self) -> None:
        self._program.finish()
        until(lambda: self.said("finished") or self._program.check(), f"{self._kind}: every message to be answered")
        assert self.said("failed") == []
        stored = {each["text"] for each in self.said("stored")}
        assert stored == {each["text"] for each in self.said("sent")}
        self._until_all_came(stored)
        self._backlog_is_gone(self.topic)

    def _until_all_came(self, stored: set[str]) -> None:
        def missing() -> list[str]:
            return sorted(stored - {each["text"] for each in self.said("received")}, key=int)

        self._until_none(missing)

    def _until_none(self, missing: Callable[[], Sequence[object]]) -> None:
        until(
            lambda: not missing(),
            lambda: f"{self._kind}: {missing()[:20]} to come; last was {self.latest()}",
            progress=lambda: len(missing()),
        )

    def latest(self) -> list[Event]:
        """Of each kind of event."""
        return [events[-1] for events in list(self._events.values()) if events]

    def _backlog_is_gone(self, topic: str) -> None:
        def backlog() -> int:
            return self._admin.subscription_stats(topic, "s").backlog

        until(lambda: backlog() == 0, lambda: f"{self._kind}: {backlog()} of {topic} to be acknowledged")

    def judge(self, since: float, faults: int) -> str:
        raise NotImplementedError

    def offset(self, message_id: str) -> int:
        """Of "ledger:entry"."""
        ledger, entry = map(int, message_id.split(":"))
        return self._layout.kafka_offset(0, ledger, entry)

    @cached_property
    def _layout(self) -> LedgerLayout:
        return self._admin.node.topics.open(TopicName.parse(self.topic), Deadline.after(60)).layout

    def _stored(self) -> dict[Position, bytes]:
        """What the topic has."""
        return read_topic(self._bootstrap, self._name, 1)

    def close(self) -> None:
        self._program.close()


class PlainLoad(JavaLoad):
    """Messages are acknowledged, for Kafka to show that they are."""

    def __init__(self, fleet: Fleet, program: JavaProgram, kind: str, topic: str) -> None:
        super().__init__(fleet, program, kind, topic)
        self._sampler = Sampler(fleet.bootstrap, group_id(self._name, "s"), self._name, 1)

    def judge(self, since: float, faults: int) -> str:
        received = self.receipts()
        self._sampler.close()
        check_none_again(self.topic, self._sampler.samples, received)
        again = len(received) - len({each.text for each in received})
        gap_s = longest_gap_s((each.at for each in received), since)
        failed = len(self.said("unacknowledged"))
        return (
            f"Java {self._kind}: nothing came for {gap_s:.1f} s, {again} of {len(received)} came again, "
            f"{failed} acknowledgements failed"
        )

    def receipts(self) -> list[Receipt]:
        return [
            Receipt(each["at"], Position(0, self.offset(each["id"]), each["index"]), each["text"])
            for each in self.said("received")
        ]

    def firsts(self) -> list[Event]:
        """The receipts of what nobody had received before."""
        seen: set[str] = set()
        return [each for each in self.said("received") if not (each["text"] in seen or seen.add(each["text"]))]

    def close(self) -> None:
        self._sampler.close()
        super().close()


class DeduplicatedLoad(PlainLoad):
    """What its client sends again, because a gateway died before it answered, is not stored again."""

    def judge(self, since: float, faults: int) -> str:
        twice = [text for text, times in Counter(self._stored().values()).items() if times > 1]
        assert not twice, f"{self.topic} has {twice} twice"
        return super().judge(since, faults)


class FailoverLoad(PlainLoad):
    """One of two consumers gets messages, and the other one when that cannot."""

    def judge(self, since: float, faults: int) -> str:
        by = [each["by"] for each in self.firsts()]
        switches = sum(one != other for one, other in pairwise(by))
        assert switches <= _SWITCHES * faults, f"{self.topic}: {switches} times another consumer was the active one"
        return f"{super().judge(since, faults)}, the active one changed {switches} times"


class ExclusiveLoad(PlainLoad):
    """Another client wants to subscribe, too, and does where the first one is not there."""

    def judge(self, since: float, faults: int) -> str:
        begins, ends = self.said("in"), self.said("out")
        assert self.said("refused")
        times = [each["at"] for each in self.firsts()]
        for begin, end in zip(begins, ends, strict=False):
            both = sum(begin["at"] < at < end["at"] for at in times)
            assert both <= _IN_CLIENT, f"{self.topic}: {both} messages came while another one was the exclusive one"
        return f"{super().judge(since, faults)}, another one was let in {len(begins)} times"


class TransactionLoad(JavaLoad):
    """Each message is told of in another topic and acknowledged, in a transaction, by its committed ones once."""

    def done(self, since: float) -> int:
        self._program.check()
        return self._said_since("seen", since) * _RARER

    def finish(self) -> None:
        super().finish()
        self._backlog_is_gone(self._out)

    @property
    def _out(self) -> str:
        return f"{self.topic}-out"

    def _until_all_came(self, stored: set[str]) -> None:
        offsets = sorted(each.offset for each in self._stored())

        def missing() -> list[int]:
            told = {self._told(each["text"])[0] for each in self.said("seen")}
            return [offset for offset in offsets if offset not in told]

        self._until_none(missing)

    def _told(self, text: str) -> tuple[int, str]:
        message_id, txn = text.split()
        return self.offset(message_id), txn

    def judge(self, since: float, faults: int) -> str:
        told = Counter(map(self._told, self._committed()))
        times_told = Counter(offset for offset, _ in told)  # what its client sent again is there twice
        wrong = {each.offset: times_told[each.offset] for each in self._stored() if times_told[each.offset] != 1}
        assert not wrong, f"{self.topic}: what was told of not once, by what committed: {wrong}"
        seen = {self._told(each["text"]) for each in self.said("seen")}
        assert seen == set(told), f"{self._out}: seen, or committed, but not both: {seen ^ set(told)}"
        committed = {txn for _, txn in told}
        for each in self.said("begun"):
            parts = {(self.offset(message_id), each["txn"]) for message_id in each["ids"].split()}
            assert each["txn"] not in committed or parts <= set(told), f"{each} has committed a part of it"
        said = {did: {each["txn"] for each in self.said(did)} for did in ("begun", "committed", "aborted", "unknown")}
        assert not said["committed"] - committed, f"said to have committed: {said['committed'] - committed}"
        assert not said["aborted"] & committed, f"said to have aborted: {said['aborted'] & committed}"
        assert not committed - said["begun"]
        times = [each["at"] for each in self.said("seen")]
        figures = {did: len(each) for did, each in said.items()}
        return (
            f"Java transactions: nothing came for {longest_gap_s(times, since):.1f} s, {figures}, "
            f"{len(committed)} have committed, {len(times) - len(seen)} of {len(times)} came again"
        )

    def _committed(self) -> list[str]:
        """What a reader of the SDK sees."""
        client = pulsar.Client(f"kafka://{self._bootstrap}", operation_timeout_seconds=90)
        try:
            reader = client.create_reader(self._out, pulsar.MessageId.earliest)
            found = []
            while reader.has_message_available():
                found.append(reader.read_next(60_000).data().decode())
            return found
        finally:
            client.close()


KINDS: Final[dict[str, type[JavaLoad]]] = {
    "receipts": DeduplicatedLoad,
    "batches": PlainLoad,
    "cumulative": FailoverLoad,
    "alone": ExclusiveLoad,
    "transactions": TransactionLoad,
}


def with_java() -> Loads:
    """`java_loads`; skips the test where the machine has no compiler for it."""
    try:
        java_program(SOURCE)
    except Missing as missing:
        pytest.skip(str(missing))
    return java_loads


def java_loads(fleet: Fleet) -> Sequence[JavaLoad]:
    """One of each kind, by one Java program."""
    topics = {kind: fleet.topic() for kind in KINDS}
    for name in (topics["receipts"], topics["transactions"]):
        fleet.admin.create_topic(name)
        fleet.admin.set_policy(name, "deduplication", True)
    program = JavaProgram(fleet.address, topics, fleet.directory / "java.log")
    return [made(fleet, program, kind, topics[kind]) for kind, made in KINDS.items()]
