"""`write_pulsar` and `pulsar_batches` write a DataFrame's rows as messages, through Spark's own Kafka sink."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.record_limits import NO_KEY
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node, acquire, release
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.outgoing_schema import version_header
from pulsar_on_kafka.broker.schema_registry.judging import policies_when_opened
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction, TransactionState
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES, RECORD_OVERHEAD_BYTES
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.base.errors import InvalidWriteOption, NotWritten
from pulsar_on_kafka_spark.base.spark_session import check_session, require_classic
from pulsar_on_kafka_spark.options.write_options import BYTES, DERIVED, OF_TOPIC, WriteOptions, parse_write_options
from pulsar_on_kafka_spark.reading.connection import driver_settings, kafka_options
from pulsar_on_kafka_spark.values.value_encoding import VALUE, Encoded, derived_schema, encoded
from pulsar_on_kafka_spark.writing.batch_journal import BatchJournal, MicroBatch
from pulsar_on_kafka_spark.writing.record_columns import MessageColumns, sink_columns

_PATIENCE_S: Final = 30.0
_DROPPED: Final = "appStatus.numDroppedEvents"


class JobAttempts:
    """The attempts of one job of the current thread are watched."""

    def __init__(self, spark: SparkSession) -> None:
        """Raises InvalidWriteOption: the session runs tasks twice as it likes; SparkNotReady: it is one of Connect."""
        require_classic(spark, "the result of a transactional write comes from the scheduler, in the driver's JVM")
        untyped: Any = spark
        self._context = untyped.sparkContext
        if str(self._context.getConf().get("spark.speculation", "false")).lower() == "true":
            raise InvalidWriteOption("transaction does not go with spark.speculation=true: tasks would write twice")
        self._scheduler = untyped._jsparkSession.sparkContext()
        self._tag = f"pulsar-write-{secrets.token_hex(8)}"
        self._dropped = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The job is run inside of it."""
        self._dropped = self._dropped_events()
        self._context.addJobTag(self._tag)
        try:
            yield
        finally:
            self._context.removeJobTag(self._tag)

    def doubt(self) -> str:
        """The reason for doubt that each of the job's tasks ran once; '' without one. After a job that succeeded."""
        found = list(self._scheduler.statusTracker().getJobIdsForTag(self._tag))
        if not found:
            return "Spark knows nothing of the job"
        store = self._scheduler.statusStore()
        job = max(found)  # those before it prepared its input, and wrote nothing

        def succeeded() -> bool:
            return str(store.job(job).status()) == "SUCCEEDED"

        if not wait_until(succeeded, Deadline.after(_PATIENCE_S)):
            return f"Spark reports job {job} as {store.job(job).status()}"
        stages = store.job(job).stageIds()
        if stages.size() == 0:
            return ""  # nothing was there to write
        number = max(stages.apply(at) for at in range(stages.size()))  # so did those before it

        def complete() -> bool:
            return str(store.lastStageAttempt(number).status()) == "COMPLETE"

        if not wait_until(complete, Deadline.after(_PATIENCE_S)):
            return f"Spark reports stage {number} as {store.lastStageAttempt(number).status()}"
        stage = store.lastStageAttempt(number)
        if self._dropped_events() != self._dropped:
            return "Spark dropped events of its scheduler"
        reported = {
            "attempts before this one": stage.attemptId(),
            "failed tasks": stage.numFailedTasks(),
            "killed tasks": stage.numKilledTasks(),
            "running tasks": stage.numActiveTasks(),
            "tasks too many": stage.numCompleteTasks() - stage.numTasks(),
        }
        return ", ".join(f"{count} {what}" for what, count in reported.items() if count)

    def _dropped_events(self) -> int:
        counters = self._scheduler.listenerBus().metrics().metricRegistry().getCounters()
        return sum(
            int(counters.get(name).getCount()) for name in counters.keySet().toArray() if str(name).endswith(_DROPPED)
        )


_log: Final = logging.getLogger(__name__)

_CALL_S: Final = 60.0
_COMMIT_S: Final = 300.0
_STREAM_ID: Final = "sql.streaming.queryId"
_Save = Callable[[int, tuple[TxnId, int]], None]
"""Runs the job: among how many partitions keys choose, the transaction, and until when (Unix ms) rows may be sent."""
_NO_SCHEMA: Final = SchemaInfo(SchemaType.BYTES, b"", "BYTES")


def write_pulsar(rows: DataFrame, **options: Any) -> None:
    """Write each row as one message; returns when Kafka has all of them. Options: docs/spark.md.

    Without `transaction` messages become visible as they come, and a task that Spark runs again writes its rows again.
    With it all of them become visible together, each once, or none does.

    Raises:
        InvalidWriteOption: an option or a column is not what it should be; nothing was written.
        IncompatibleSchema, TopicNotFound, ProducerBusy, ...: as `Client.create_producer`; nothing was written.
        NotWritten: a transactional write was undone.
        Timeout: whether the transaction was committed is not known.
        Exception: Spark's own, when the job fails; with `transaction` nothing of it becomes visible.
    """
    _Write(rows, parse_write_options(options)).run()


def pulsar_batches(**options: Any) -> Callable[[DataFrame, int], None]:
    """The function for `DataStreamWriter.foreachBatch`: writes every micro-batch as `write_pulsar` does.

    With `transaction` and `queryName` each micro-batch is written once, also when Spark runs it again after a crash.

    Raises:
        InvalidWriteOption: see `write_pulsar`, as far as it can be checked without a row.
    """
    query = options.pop("queryName", None) or options.pop("query_name", None)
    parse_write_options({**options, "queryName": query, "batchId": None if query is None else 0})

    def write(rows: DataFrame, batch_id: int) -> None:
        write_pulsar(rows, **options, queryName=query, batchId=None if query is None else batch_id)

    return write


class _Write:
    def __init__(self, rows: DataFrame, options: WriteOptions) -> None:
        self._rows = rows
        self._options = options
        self._spark: Any = rows.sparkSession
        check_session(rows.sparkSession, "avro")
        self._columns = MessageColumns(rows, options)
        self._attempts = JobAttempts(rows.sparkSession) if options.transaction else None

    def run(self) -> None:
        with pulsar_errors(), _node_of(self._options) as node:
            name = TopicName.parse(self._options.topic)
            topic = node.topics.open(name, Deadline.after(_CALL_S))
            limits = node.limits.of(topic, Deadline.after(_CALL_S))
            info = self._schema(node, topic)
            payload = self._encoded(info)
            has_key = payload.key is not None or self._columns.key is not None
            limits.check(has_key=has_key, in_transaction=self._options.transaction)
            self._check_sequence_ids(node, topic)
            policies = policies_when_opened(topic)
            version = node.schemas.for_producer(topic.name, info, Deadline.after(_CALL_S), policies)
            marks: list[tuple[str, bytes]] = [] if version is None else [version_header(version)]
            if version is not None and node.schemas.requires_confluent_ids(name, Deadline.after(_CALL_S), policies):
                marks += node.schemas.confluent_headers(name, version, Deadline.after(_CALL_S))
            membership = node.producers.join(
                topic, self._options.producer_name, AccessMode.SHARED, Deadline.after(_CALL_S)
            )
            try:
                node.topics.deletions.await_decision(topic, Deadline.after(_CALL_S))
                if self._more_than_plain(info):
                    node.producers.more_than_plain(topic, Deadline.after(_CALL_S))
                if self._options.transaction:
                    node.producers.marked(topic, Deadline.after(_CALL_S))
                if name.partition < 0 and has_key:
                    node.producers.hashing_schemes.begins(topic, KeyHash.CRC32)
                keyless = limits.why(NO_KEY) if limits.compacted else ""
                self._write(node, topic, name, payload, marks, membership, keyless)
            finally:
                membership.leave(Deadline.after(_CALL_S))

    def _schema(self, node: Node, topic: Topic) -> SchemaInfo | None:
        required = self._options.schema
        if isinstance(required, Schema):
            return required.schema_info()
        if isinstance(required, SchemaInfo):
            return required
        if required in DERIVED:
            return derived_schema(
                self._rows, SchemaType[required.upper()], self._columns.not_of_the_value(), topic.name.base.local_name
            )
        if required == BYTES:
            return None
        assert required == OF_TOPIC  # noqa: S101 - checked with the options
        latest = node.schemas.latest(topic.name, Deadline.after(_CALL_S))
        return None if latest is None else latest.info

    def _encoded(self, info: SchemaInfo | None) -> Encoded:
        others = self._columns.not_of_the_value() | self._columns.may_be_of_the_value()
        found = encoded(self._rows, info or _NO_SCHEMA, others)
        if found.key is not None and self._columns.key is not None and self._options.key_column is not None:
            raise InvalidWriteOption("keyColumn does not go with separated keys: the key of the value is the key")
        return found

    def _check_sequence_ids(self, node: Node, topic: Topic) -> None:
        if self._options.producer_name is None:
            return
        policies = node.producer_policies([topic.name.base], Deadline.after(_CALL_S))[topic.name.base]
        if policies.deduplication:
            raise InvalidWriteOption(
                f"producerName does not go with the deduplication of topic {topic.name}: Spark's tasks write side by "
                "side, so that sequence ids do not go up, and messages would be taken for repeated ones"
            )

    def _more_than_plain(self, info: SchemaInfo | None) -> bool:
        """Whether the topic may contain messages whose readers need headers."""
        columns = self._columns
        if columns.deliver_at is not None or columns.ordering_key is not None:
            return True
        if info is not None and info.type in (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF_NATIVE):
            return False
        if info is not None and info.type is SchemaType.KEY_VALUE:
            return True
        return bool(self._rows.schema[VALUE].nullable)

    def _write(
        self,
        node: Node,
        topic: Topic,
        name: TopicName,
        payload: Encoded,
        marks: Sequence[tuple[str, bytes]],
        membership: Membership,
        keyless: str,
    ) -> None:
        """`keyless`: see `sink_columns`."""
        producer = None
        if self._options.producer_name is not None:
            producer = self._options.producer_name, membership.epoch

        def save(partitions: int, txn: tuple[TxnId, int] | None) -> None:
            fixed = name.partition if name.partition >= 0 else None
            found = sink_columns(self._rows, self._columns, payload, partitions, fixed, marks, producer, txn, keyless)
            found.write.format("kafka").options(**_sink_options(self._options, topic)).save()

        if self._attempts is None:
            save(topic.partitions, None)
            membership.confirm(Deadline.after(_CALL_S))
            return
        transactional = _InTransactions(self._options, node, topic, name, membership, self._attempts)
        transactional.run(save, self._spark.sparkContext.getLocalProperty(_STREAM_ID) or "")


class _InTransactions:
    """Runs the job in a transaction, and again in another one while it is not certain that each of its tasks ran
    once."""

    def __init__(
        self,
        options: WriteOptions,
        node: Node,
        topic: Topic,
        name: TopicName,
        membership: Membership,
        attempts: JobAttempts,
    ) -> None:
        self._options = options
        self._node = node
        self._topic = topic
        self._fixed = name.partition if name.partition >= 0 else None
        self._membership = membership
        self._attempts = attempts

    def run(self, save: _Save, stream: str) -> None:
        batch = journal = None
        if self._options.query_name is not None and self._options.batch_id is not None:
            batch = MicroBatch(stream, self._options.batch_id)
            journal = BatchJournal(self._node, self._topic.name, self._options.query_name, Deadline.after(_CALL_S))
        for attempt in range(1, self._options.transaction_attempts + 1):
            doubt = self._once(save, journal, batch)
            if not doubt:
                return
            _log.warning("topic=%s attempt=%d of a write was undone: %s", self._topic.name, attempt, doubt)
        raise NotWritten(
            f"the write to {self._topic.name} was undone {self._options.transaction_attempts} times: {doubt}"
        )

    def _once(self, save: _Save, journal: BatchJournal | None, batch: MicroBatch | None) -> str:
        """Why it was undone; '' when it is written, or was before."""
        deadline = Deadline.after(_CALL_S)
        txn = self._node.transactions.client(deadline).begin(self._options.transaction_timeout_ms, deadline)
        with _not_written_when_over(self._topic, txn), _aborted_unless_committed(self._node, txn):
            entered = None
            if journal is not None and batch is not None:
                entered = journal.enter(txn, batch, Deadline.after(_CALL_S))
                if entered is None:
                    _log.info("topic=%s batch=%d was written before", self._topic.name, batch.number)
                    return ""
            count = self._node.topics.partitions_now(self._topic, Deadline.after(_CALL_S))
            for partition in range(count) if self._fixed is None else (self._fixed,):
                txn.register_partition(str(self._topic.name.base), partition, Deadline.after(_CALL_S))
            until_ms = self._node.clock.now_ms() + txn.remaining_ms()
            with self._attempts.watched():
                save(count, (txn.id, until_ms))
            doubt = self._attempts.doubt() or self._grown_from(count)
            if doubt:
                return doubt
            self._membership.confirm(Deadline.after(_CALL_S))
            txn.commit(Deadline.after(_COMMIT_S))
        if journal is not None and entered is not None:
            journal.forget_before(entered, Deadline.after(_CALL_S))
        return ""

    def _grown_from(self, count: int) -> str:
        """Why rows would not be where other producers send their keys by now, '' where they are."""
        now = self._node.topics.partitions_now(self._topic, Deadline.after(_CALL_S))
        return "" if now <= count or self._fixed is not None else f"the topic has {now} partitions, it had {count}"


@contextmanager
def _not_written_when_over(topic: Topic, txn: ClientTransaction) -> Iterator[None]:
    """Its time may be over at any step, also before the job began."""
    try:
        yield
    except (errors.InvalidTxnStatus, errors.TransactionHasFailed) as refused:
        why = refused if txn.remaining_ms() > 0 else f"transaction {txn.id} has timed out (transactionTimeout)"
        raise NotWritten(f"the write to {topic.name} was undone: {why}") from refused


@contextmanager
def _aborted_unless_committed(node: Node, txn: ClientTransaction) -> Iterator[None]:
    """Also one whose time is over: this process may be the only one that serves coordinators, and is about to leave."""
    try:
        yield
    finally:
        if txn.state not in (TransactionState.COMMITTED, TransactionState.COMMITTING):
            try:
                with suppress(errors.InvalidTxnStatus, errors.TransactionNotFound):
                    node.transactions.end(txn.id, commit=False, deadline=Deadline.after(_CALL_S))
            except errors.LayerError as failure:
                _log.warning("transaction=%s is left to its time-out: %s", txn.id, failure)


@contextmanager
def _node_of(options: WriteOptions) -> Iterator[Node]:
    node = acquire(driver_settings(options, InvalidWriteOption), Deadline.after(_CALL_S))
    try:
        yield node
    finally:
        release(node)


def _sink_options(options: WriteOptions, topic: Topic) -> dict[str, str]:
    by_default = {"max.request.size": str(MAX_MESSAGE_BYTES + RECORD_OVERHEAD_BYTES)}
    return {
        **kafka_options(options, by_default, InvalidWriteOption),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "topic": topic.kafka_topic,
    }
