"""`--probe` tests the rights and the clock on a topic that is deleted again.

The topic's records carry the broker's clock (`LogAppendTime`), which tells the skew.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cli.doctor.cluster import DoctorFinding, Status, advice, fail, ok, warn
from pulsar_on_kafka.cli.shared.output import one_line
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.reading.events import Failed
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.state.cursors.cursor_state import MAX_METADATA_CHARS

STEP_S: Final = 15.0
SKEW_WARN_MS: Final = 1_000
SKEW_FAIL_MS: Final = 60_000
_CONFIGS: Final = {"message.timestamp.type": "LogAppendTime", "retention.ms": "3600000"}
_RECORDS: Final = 2
_SLOW_JOIN_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Sent:
    """Times at which a record was sent and answered, Unix ms of this machine."""

    before_ms: int
    after_ms: int


def probe(settings: KafkaSettings, admin: KafkaAdmin) -> Iterator[DoctorFinding]:
    """Create, write, read, join, commit, delete; after a step that fails only the deletion follows."""
    name = f"pok-doctor-{secrets.token_hex(6)}"
    try:
        admin.create_topic(name, 1, _CONFIGS, Deadline.after(STEP_S))
    except errors.LayerError as failure:
        yield fail("create a topic", one_line(failure), advice(failure, "grant Create on topics (or on the cluster)"))
        return
    yield ok("create a topic", name)
    try:
        yield from _use(settings, admin, name)
    finally:
        # Not a check of its own when all went well; a generator that is closed early still cleans up.
        deleted = _delete(admin, name)
    yield deleted


def _use(settings: KafkaSettings, admin: KafkaAdmin, name: str) -> Iterator[DoctorFinding]:
    try:
        sent = _write(settings, name)
    except errors.LayerError as failure:
        yield fail("write", one_line(failure), advice(failure, "grant Write on topics"))
        return
    yield ok("write", f"{_RECORDS} records, the last one answered in {sent.after_ms - sent.before_ms} ms")
    try:
        stamped_ms = _read_timestamp(settings, name)
    except errors.LayerError as failure:
        yield fail("read", one_line(failure), advice(failure, "grant Read on topics"))
        return
    yield ok("read", f"{_RECORDS} records")
    yield judge_clock(sent, stamped_ms)
    try:
        joined_ms = _join_and_commit(settings, name)
    except errors.LayerError as failure:
        yield fail("join a group and commit", one_line(failure), advice(failure, "grant Read on groups"))
        return
    finally:
        _delete_group(admin, name)
    reported = f"joined in {joined_ms} ms, committed {MAX_METADATA_CHARS} bytes of metadata"
    if joined_ms > _SLOW_JOIN_MS:
        yield warn("join a group and commit", reported, "see group.initial.rebalance.delay.ms")
    else:
        yield ok("join a group and commit", reported)


def judge_clock(sent: Sent, stamped_ms: int) -> DoctorFinding:
    """The broker stamped the record between the two; anything outside is skew."""
    skew_ms = stamped_ms - min(max(stamped_ms, sent.before_ms), sent.after_ms)
    if abs(skew_ms) <= SKEW_WARN_MS:
        return ok("clock", f"the broker's is {skew_ms:+,} ms from ours" if skew_ms else "the broker's agrees with ours")
    status = Status.FAIL if abs(skew_ms) > SKEW_FAIL_MS else Status.WARN
    ahead = "ahead of" if skew_ms > 0 else "behind"
    return DoctorFinding(
        "clock",
        status,
        f"the broker's is {abs(skew_ms):,} ms {ahead} ours",
        "publish times and seeks to a time are off by that: run NTP on both machines",
    )


def _write(settings: KafkaSettings, topic: str) -> Sent:
    producer = KafkaProducer(settings.producer(compression="none", message_timeout_ms=int(STEP_S * 1000), linger_ms=0))
    try:
        for _ in range(_RECORDS):  # the first one also pays for learning where the topic is
            before_ms = _now_ms()
            producer.append(topic, 0, b"key", b"value", Deadline.after(STEP_S))
            sent = Sent(before_ms, _now_ms())
    finally:
        producer.close(Deadline.after(1.0))
    return sent


def _read_timestamp(settings: KafkaSettings, topic: str) -> int:
    """The broker's clock when it took the last record, Unix ms."""
    fetcher = Fetcher(settings.reader(fetch_queue_kbytes=1024))
    try:
        batches = fetcher.read(topic, 0, 0, _RECORDS, Deadline.after(STEP_S))
        return [record for batch in batches for record in batch][-1].timestamp()[1]
    finally:
        fetcher.close()


def _join_and_commit(settings: KafkaSettings, name: str) -> int:
    """The time of joining, in ms."""
    assigned: list[int] = []

    def take(partitions: list[int]) -> dict[int, int]:
        assigned.extend(partitions)
        return dict.fromkeys(partitions, 0)

    nothing: Callable[[object], None] = lambda _: None  # noqa: E731 - three callbacks that need do nothing
    config = settings.group_member(group_id=name, client_id="pok-doctor", fetch_queue_kbytes=1024, partitioned=False)
    deadline = Deadline.after(STEP_S)
    start = time.monotonic()
    member = GroupConsumer(config, name, GroupCallbacks(take, nothing, nothing, nothing))
    try:
        while not assigned:
            deadline.check(f"a place in group {name}")
            for event in member.poll(1, 0.1):
                if isinstance(event, Failed):
                    raise event.failure
        joined_ms = round((time.monotonic() - start) * 1000)
        member.commit({0: CommittedOffset(1, "x" * MAX_METADATA_CHARS)})
    finally:
        member.close()
    return joined_ms


def _delete_group(admin: KafkaAdmin, group: str) -> None:
    try:
        admin.delete_group(group, Deadline.after(STEP_S))
    except errors.LayerError:
        return  # an empty group of a deleted topic goes by itself


def _delete(admin: KafkaAdmin, topic: str) -> DoctorFinding:
    try:
        admin.delete_topic(topic, Deadline.after(STEP_S))
    except errors.LayerError as failure:
        reported = advice(failure, "grant Delete on topics")
        return warn("delete a topic", one_line(failure), f"{reported}; {topic} is left behind")
    return ok("delete a topic", topic)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
