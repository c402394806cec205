"""The data topics of all Pulsar topics: whether Kafka's clean-up may erase their messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.metadata.record_limits import EACH_ALONE, RecordLimits
from pulsar_on_kafka.cli.doctor.cluster import ANSWER_S, DoctorFinding, advice, fail, ok, warn
from pulsar_on_kafka.cli.shared.output import one_line
from pulsar_on_kafka.kafka.admin import KafkaAdmin, is_compacted
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, TopicRecord, decode_topic
from pulsar_on_kafka_mapping.state.state_topics import TOPICS

CHECK: Final = "data topics"
_READ_S: Final = 60.0


def check_data_topics(settings: KafkaSettings, admin: KafkaAdmin) -> Iterator[DoctorFinding]:
    """One line for each topic that Kafka compacts, and one for all others."""
    kafka_name = settings.instance.state_topic(TOPICS)
    try:
        there = kafka_name in admin.list_topics(Deadline.after(ANSWER_S))
        records = _records(settings, kafka_name) if there else []
        configs = admin.configs_of_topics([each.kafka_topic for each in records], Deadline.after(_READ_S))
    except errors.LayerError as failure:
        yield warn(CHECK, one_line(failure), advice(failure, f"grant Read on topic {kafka_name}"))
        return
    yield from judge_data_topics(records, configs)


def judge_data_topics(
    records: Iterable[TopicRecord], configs: Mapping[str, Mapping[str, str]]
) -> Iterator[DoctorFinding]:
    """`configs`: by Kafka's names of the topics; one that is not there may not be seen."""
    unseen = sound = 0
    for record in records:
        config = configs.get(record.kafka_topic)
        if config is None:
            unseen += 1
        elif not is_compacted(config):
            sound += 1
        elif record.bound:
            forbids = RecordLimits(record.kafka_topic, compacted=True).why(EACH_ALONE)
            yield warn(CHECK, f"{record.name}: {forbids}", "docs/differences.md, Kafka topics that are compacted")
        else:
            policy = f"cleanup.policy of Kafka topic {record.kafka_topic} is {config['cleanup.policy']}, not delete"
            alter = f"kafka-configs --alter --topic {record.kafka_topic} --add-config cleanup.policy=delete"
            yield fail(CHECK, f"{record.name}: {policy}: Kafka erases messages that are not acknowledged", alter)
    not_seen = f", {unseen} whose configuration may not be seen" if unseen else ""
    yield ok(CHECK, f"{counted(sound, 'topic')} that Kafka does not compact{not_seen}")


def _records(settings: KafkaSettings, kafka_name: str) -> list[TopicRecord]:
    """The records of the topics that are there; a record that cannot be read is `check_state`'s to report."""
    newest: dict[bytes, bytes | None] = {}
    deadline = Deadline.after(_READ_S)
    fetcher = Fetcher(settings.of_state(settings.reader(fetch_queue_kbytes=4096)))
    try:
        for number in range(TOPICS.partitions):
            start, end = fetcher.watermarks(kafka_name, number, deadline)
            for batch in fetcher.read(kafka_name, number, start, end, deadline):
                newest.update((record.key() or b"", record.value()) for record in batch)
    finally:
        fetcher.close()
    return [each for each in map(_record, newest.values()) if each is not None and each.state is LifeState.ACTIVE]


def _record(value: bytes | None) -> TopicRecord | None:
    try:
        return None if value is None else decode_topic(value)
    except MappingError:
        return None
