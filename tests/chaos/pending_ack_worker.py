"""A process that owns a partition, acknowledges one message in a transaction of somebody else's, and is cut short.

Arguments: service URL, topic, subscription, point, signal. On stdin the transaction's id (two numbers). On stdout:
`ready`, `cut`, `answer ok` or `answer ` and why not.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from pyroaring import BitMap64

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.subscriptions.member.saving import CursorSaver
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import PendingAcks
from pulsar_on_kafka.kafka.groups.wire_member import WireMember
from pulsar_on_kafka.statelog.kafka_log import KafkaStateLog
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_state import decode_commit_metadata
from pulsar_on_kafka_mapping.state.state_keys import CursorTakeoverKey, PendingAckEndKey, PendingAckKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_PENDING_ACK
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck
from tests.chaos.wrapping import wrap

BEFORE_THE_ANSWER: Final = ("take-over", "taken over", "mark", "marked", "ack", "acked", "read")
"""What comes next when the process ends: the TAKEOVER; its reading; the commit with the mark; its acceptance; the ack;
its reading; its answer."""
AFTER_THE_COMMIT: Final = ("settle", "save", "saved", "clean", "clean end")
"""The outcome's way to the cursor; the commit that holds it; its acceptance; the ack's tombstone; the END's."""


def say(text: str) -> None:
    print(text, flush=True)


class Cut:
    """The signal comes when the process gets to `point` first."""

    def __init__(self, point: str, signal_name: str) -> None:
        self._point = point
        self._signal = signal.Signals[signal_name]
        self._settled = False
        self._around(KafkaStateLog, KafkaStateLog.append_many, self._appends, self._appended)
        self._around(WireMember, WireMember.commit_async, self._commits)
        self._around(CursorSaver, CursorSaver._accepted, self._accepts)
        self._around(PendingAcks, PendingAcks.settle, self._settles)
        self._around(PendingAcks, PendingAcks.read_back, self._reads_back)

    def _around(
        self,
        owner: type[Any],
        function: Callable[..., Any],
        before: Callable[..., None],
        after: Callable[..., None] = lambda *_: None,
    ) -> None:
        def cut(original: Callable[..., Any], *arguments: Any) -> Any:
            before(*arguments)
            result = original(*arguments)
            after(*arguments)
            return result

        wrap(owner, function, cut)

    def _appends(self, log: Any, topic: Any, partition: int, records: Any, deadline: Any) -> None:
        for kind, there in _kinds(topic, records):
            self.at(_APPENDS[kind, there][0])

    def _appended(self, log: Any, topic: Any, partition: int, records: Any, deadline: Any) -> None:
        for kind, there in _kinds(topic, records):
            self.at(_APPENDS[kind, there][1])

    def _commits(self, consumer: Any, commits: Any) -> None:
        metadata = [decode_commit_metadata(commit.metadata) for commit in commits.values()]
        if any(each is not None and each.pending_acks for each in metadata):
            self.at("save" if self._settled else "mark")

    def _accepts(self, saver: Any, saves: Any) -> None:
        if any(save.saved.pending_acks for save in saves.values()):
            self.at("saved" if self._settled else "marked")

    def _settles(self, pending: Any, *_: Any) -> None:
        if pending._outcomes:
            self.at("settle")
            self._settled = True

    def _reads_back(self, pending: Any, *_: Any) -> None:
        if pending._requested:
            self.at("read")

    def at(self, point: str) -> None:
        if point and point == self._point:
            self._point = ""
            say("cut")
            os.kill(os.getpid(), self._signal)


_APPENDS: Final = {
    (CursorTakeoverKey, True): ("take-over", "taken over"),
    (CursorTakeoverKey, False): ("", ""),
    (PendingAckKey, True): ("ack", "acked"),
    (PendingAckKey, False): ("clean", ""),
    (PendingAckEndKey, True): ("", ""),
    (PendingAckEndKey, False): ("clean end", ""),
}


def _kinds(topic: Any, records: Any) -> list[tuple[Any, bool]]:
    if topic is not TRANSACTION_PENDING_ACK:
        return []
    return [(type(decode_key(key)), value is not None) for key, value in records]


def main() -> None:
    service_url, topic, subscription, point, signal_name = sys.argv[1:]
    client = pulsar.Client(service_url)
    consumer = client.subscribe(
        topic, subscription, pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    message = consumer.receive(120_000)
    Cut(point, signal_name)
    say("ready")
    most, least = map(int, sys.stdin.readline().split())
    ack = TxnAck(BitMap64((message.offset,)))
    try:
        consumer._member.acknowledge_in(TxnId(most, least), 0, ack, Deadline.after(300)).result(300)
    except Exception as failure:
        say(f"answer {type(failure).__name__}: {failure}".replace("\n", " "))
    else:
        say("answer ok")
    sys.stdin.readline()
    client.close()


if __name__ == "__main__":
    main()
