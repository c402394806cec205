"""`stream_pulsar` delivers a subscription's messages in micro-batches, which are acknowledged after processing.

A batch in steps, each of which may be the last one before a crash: Spark writes its offsets ahead; the delivered
messages are written into the checkpoint (`plan`); `fn` runs; the refused ones are written (`outcome`); the rest is
acknowledged; Spark records that the batch is done. A batch that is repeated after a crash delivers the messages of its
plan, and `fn` does not run again once the outcome is written.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.acknowledging.acknowledge import acknowledge_entries
from pulsar_on_kafka_spark.acknowledging.located_messages import located, located_ids
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.base.java_proxies import driver_jvm
from pulsar_on_kafka_spark.base.query_errors import reported
from pulsar_on_kafka_spark.base.spark_session import check_session, require_classic
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.options.stream_options import StreamOptions, parse_stream_options
from pulsar_on_kafka_spark.planning.batch_plan import (
    BatchPlan,
    ByTopic,
    Pending,
    accepted,
    both,
    decode_outcome,
    decode_plan,
    encode_outcome,
    encode_plan,
    only,
    spread,
)
from pulsar_on_kafka_spark.planning.visibility import SNAPSHOT_S, TopicView, find_topic
from pulsar_on_kafka_spark.reading import message_frame as frame
from pulsar_on_kafka_spark.reading.chunk_frames import look
from pulsar_on_kafka_spark.reading.connection import node_of
from pulsar_on_kafka_spark.reading.named_topics import schemas_of
from pulsar_on_kafka_spark.reading.poll_limit import with_poll_limit
from pulsar_on_kafka_spark.reading.tenant_cluster import on_cluster
from pulsar_on_kafka_spark.streaming.control_stream import control_frame, count_rows
from pulsar_on_kafka_spark.streaming.stream_offset import parse_offset
from pulsar_on_kafka_spark.streaming.stream_planner import TopicPlanner
from pulsar_on_kafka_spark.streaming.stream_topics import check_lives, views_of_plan

_log = logging.getLogger(__name__)

_SAMPLE_INTERVAL_S: Final = 30.0
"""The interval between samples of the records' sizes."""

BatchFunction = Callable[..., object]
"""`fn(df, batch_id)` or `fn(df, batch_id, context)`."""


def stream_pulsar(spark: SparkSession, **options: Any) -> PulsarStream:
    """The messages of a subscription as a stream; nothing is touched before `foreach_batch`. Options: docs/spark.md.

    Raises:
        InvalidReadOption, SparkNotReady: see `spark.base.errors`; sessions of Spark Connect are not ready for it.
    """
    return PulsarStream(spark, options)


class BatchContext:
    """The context receives `fn`'s refusals of its batch."""

    def __init__(self) -> None:
        self.refused: list[DataFrame | list[Any]] = []

    def negative_acknowledge(self, messages: DataFrame | Iterable[Any]) -> None:
        """Refuses messages: they are not acknowledged, and are redelivered in a later batch,
        `negativeAckRedeliveryDelayMs` from now at the earliest. `messages`: rows of the batch's DataFrame (with
        `__messageId`, or `__partition` and `__offset`), or message ids.

        Evaluated when `fn` has returned; messages of other batches are ignored.
        """
        self.refused.append(messages if isinstance(messages, DataFrame) else list(messages))


class PulsarStream:
    """A requested stream; `foreach_batch` starts it."""

    def __init__(self, spark: SparkSession, options: dict[str, Any]) -> None:
        self._spark = spark
        self._options = parse_stream_options(options)
        require_classic(
            spark,
            "a stream's triggers and offsets come from this process through the driver's JVM",
            'spark.readStream.format("pulsar_on_kafka")',
        )
        check_session(spark)

    if not TYPE_CHECKING:  # for a type checker, it would make every name one of the stream's

        def __getattr__(self, name: str) -> NoReturn:
            """Raises AttributeError, which says how the stream is used: it is neither DataFrame nor reader."""
            if name.startswith("_"):
                raise AttributeError(f"PulsarStream has no attribute {name}")
            raise AttributeError(
                f"PulsarStream has no {name}: it is no DataFrame. Start it by .foreach_batch(fn, checkpoint=...), "
                "which calls fn(df, batch_id) with the DataFrame of each micro-batch; a streaming DataFrame is "
                "spark.readStream.format('pulsar_on_kafka').options(...).load()"
            )

    def foreach_batch(
        self,
        fn: BatchFunction,
        *,
        checkpoint: str,
        query_name: str | None = None,
        processing_time: str | None = None,
        available_now: bool = False,
        once: bool = False,
    ) -> StreamingQuery:
        """Start a query that calls `fn` with each micro-batch as a DataFrame, which runs wholly in the JVM.

        A batch that delivers nothing is no call. Without a trigger, the next batch begins when the last one has ended
        and there is something.

        Args:
            checkpoint: a directory of this stream's own, on any file system that Hadoop reaches.
            processing_time: Spark's trigger; at most one of the three is given.
            available_now: as `processing_time`.
            once: as `processing_time`.

        Raises:
            InvalidReadOption: more than one trigger is given, or `fn` takes no DataFrame and batch id.
            NotReadable: the topic or subscription is not there.
        """
        triggers: list[dict[str, Any]] = []
        if processing_time is not None:
            triggers.append({"processingTime": processing_time})
        triggers += [{name: True} for name, given in (("availableNow", available_now), ("once", once)) if given]
        if len(triggers) > 1:
            given = " and ".join(name for each in triggers for name in each)
            raise InvalidReadOption(f"{given} are given, expected one trigger")
        if not checkpoint:
            raise InvalidReadOption("checkpoint is empty, expected a directory of this stream's own")
        with ExitStack() as stack:
            options = replace(self._options, read=on_cluster(self._options.read))
            node = stack.enter_context(node_of(options.read))
            planner = TopicPlanner(node, options, partial(look, self._spark, options.read))
            planner.first()  # errors of the topic or the subscription are raised here
            batches = _Batches(self._spark, node, planner, options, CheckpointFiles(self._spark, checkpoint), fn)
            writer = control_frame(self._spark, planner).writeStream.foreachBatch(reported(batches.run))
            writer = writer.option("checkpointLocation", checkpoint)
            if query_name is not None:
                writer = writer.queryName(query_name)
            if triggers:
                writer = writer.trigger(**triggers[0])
            planner.when_stopped = stack.pop_all()
        try:
            return writer.start()
        except BaseException:
            planner.stop()
            raise


class _Batches:
    """`foreachBatch` runs this in the query's thread."""

    def __init__(
        self,
        spark: SparkSession,
        node: Node,
        planner: TopicPlanner,
        options: StreamOptions,
        files: CheckpointFiles,
        fn: BatchFunction,
    ) -> None:
        self._spark = spark
        self._node = node
        self._planner = planner
        self._options = options
        self._files = files
        self._fn = fn
        self._with_context = _takes_context(fn)
        self._planned: tuple[int, BatchPlan] | None = None
        """The batch that was planned last here, by its number."""
        self._limited: tuple[ReadOptions, float] | None = None
        """`with_poll_limit`, and the monotonic time until which it holds."""

    def run(self, _: DataFrame, batch_id: int) -> None:
        plan = self._plan(batch_id)
        decided = self._decided(batch_id) if plan.delivered else {}
        refused = self._outcome(batch_id, plan) if decided is None else decided
        if self._options.acknowledge and plan.delivered:
            self._planner.check_moves()
        if self._options.acknowledge:
            self._check_incarnations(plan)
            self._acknowledge(batch_id, both(accepted(plan.delivered, refused), plan.passed))
            if decided is None:  # otherwise it was refused in a former run, and is redelivered in this one
                self._planner.keep_back(spread(refused, plan.delivered))
        self._planner.delivered += plan.entries()
        count_rows(self._spark, plan.entries())

    def _plan(self, batch_id: int) -> BatchPlan:
        """The plan that was written when the batch ran first, or, at its first run, its new plan."""
        if self._planner.under_way is None:
            raise NotReadable(f"batch {batch_id} was not planned")
        start, end = self._planner.under_way
        if not parse_offset(end).is_of(self._options.read.cluster):
            self._planned = batch_id, self._planner.plan(start, end, {})
            return self._planned[1]
        content = self._files.read(_plan_name(batch_id))
        if content is not None:
            plan = decode_plan(content, _plan_name(batch_id))
            # Spark keeps no start of the first batch: it requests one at each start, and the cursor has moved on.
            if plan.end != end or (plan.start != start and batch_id > 0):
                raise NotReadable(
                    f"the checkpoint's plan of batch {batch_id} is of {plan.start} to {plan.end}, and Spark runs it "
                    f"from {start} to {end}: the checkpoint was changed by something else"
                )
            return plan
        plan = self._planner.plan(start, end, self._pending_before(batch_id))
        self._files.write(_plan_name(batch_id), encode_plan(plan))
        self._planned = batch_id, plan
        for name in self._files.names():
            if name.split(".")[0].isdigit() and int(name.split(".")[0]) < batch_id:
                self._files.remove(name)  # Spark begins a batch when the one before is on record as done
        return plan

    def _pending_before(self, batch_id: int) -> Pending:
        """The pending chunks of the previous batch."""
        if self._planned is not None and self._planned[0] == batch_id - 1:
            return self._planned[1].pending
        before = self._files.read(_plan_name(batch_id - 1))
        if before is None:
            return {}
        plan = decode_plan(before, _plan_name(batch_id - 1))
        return plan.pending if parse_offset(plan.end).is_of(self._options.read.cluster) else {}

    def _decided(self, batch_id: int) -> ByTopic | None:
        """The refusals of `fn` in a former run of the batch; None without one."""
        content = self._files.read(_outcome_name(batch_id))
        return None if content is None else decode_outcome(content, _outcome_name(batch_id))

    def _outcome(self, batch_id: int, plan: BatchPlan) -> ByTopic:
        """Runs `fn` on the batch; returns its refusals."""
        context = BatchContext()
        messages = self.frame(plan)
        try:
            if self._with_context:
                self._fn(messages, batch_id, context)
            else:
                self._fn(messages, batch_id)
        finally:
            self._check_incarnations(plan)
        refused = self._refused(context, plan)
        if self._options.acknowledge:  # else nothing is left to be done but Spark's own record
            self._files.write(_outcome_name(batch_id), encode_outcome(refused))
        return refused

    def _check_incarnations(self, plan: BatchPlan) -> None:
        """Executors read a topic by its name and offsets, so what `fn` was given is of another topic where this raises.

        Raises:
            NotReadable: see `check_lives`.
        """
        ended = parse_offset(plan.end)
        if ended.is_of(self._options.read.cluster):
            check_lives(self._node, self._options.read, ended)

    def _refused(self, context: BatchContext, plan: BatchPlan) -> ByTopic:
        if not context.refused:
            return {}
        if not self._options.acknowledge:
            raise InvalidReadOption(
                "fn refused messages, and this stream acknowledges none: they would not be redelivered"
            )
        deadline = Deadline.after(SNAPSHOT_S)
        topics = [find_topic(self._node, TopicName.parse(name), deadline) for name in plan.delivered]
        named = [
            located(each, topics) if isinstance(each, DataFrame) else located_ids(each, topics)
            for each in context.refused
        ]
        return reduce(both, [only(each, plan.delivered) for each in named])

    def frame(self, plan: BatchPlan) -> DataFrame:
        """The messages of a batch."""
        views = views_of_plan(
            self._node, self._options.read, plan.delivered, parse_offset(plan.end), self._planner.forms
        )
        read = self._with_poll_limit(views)
        schemas = schemas_of(self._node, read, [view.topic.name for view in views])
        frames = [frame.of_topic(self._spark, read, view, own) for view, own in zip(views, schemas, strict=True)]
        return reduce(DataFrame.unionByName, frames)

    def _with_poll_limit(self, views: Sequence[TopicView]) -> ReadOptions:
        if self._limited is None or monotonic() > self._limited[1]:
            read = with_poll_limit(self._node, self._options.read, views)
            self._limited = read, monotonic() + _SAMPLE_INTERVAL_S
        return self._limited[0]

    def _acknowledge(self, batch_id: int, done: ByTopic) -> None:
        try:
            acknowledge_entries(self._node, self._options, done)
        except NotReadable as failure:
            raise NotReadable(
                f"batch {batch_id} was delivered; {failure}. The next start of this query makes them so, without "
                "delivering it again"
            ) from failure


def _takes_context(fn: BatchFunction) -> bool:
    """Raises InvalidReadOption when `fn` cannot be called with a DataFrame and a batch id."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(None, 0, None)
    except TypeError:
        try:
            signature.bind(None, 0)
        except TypeError as wrong:
            raise InvalidReadOption(
                f"fn takes {signature}, expected (df, batch_id) or (df, batch_id, context)"
            ) from wrong
        return False
    return True


def _plan_name(batch_id: int) -> str:
    return f"{batch_id}.plan"


def _outcome_name(batch_id: int) -> str:
    return f"{batch_id}.outcome"


class CheckpointFiles:
    """Files lie by name in the directory `pulsar` beside Spark's own. Used by one thread.

    Writing is atomic as Spark's own logs are: by its `CheckpointFileManager`.
    """

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        java = driver_jvm(spark)
        self._jvm = jvm = java.jvm
        self._directory = jvm.org.apache.hadoop.fs.Path(jvm.org.apache.hadoop.fs.Path(checkpoint), "pulsar")
        streaming = java.sql.execution.streaming
        manager = (streaming if java.minor < (4, 1) else streaming.checkpointing).CheckpointFileManager
        self._files = manager.create(self._directory, java.session.sessionState().newHadoopConf())
        self._made = False

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file of that name; when this returns, it is durable."""
        if not self._made:
            self._files.mkdirs(self._directory)
            self._made = True
        stream = self._files.createAtomic(self._path(name), True)
        try:
            stream.write(content)
            stream.close()
        except BaseException:
            stream.cancel()
            raise

    def read(self, name: str) -> bytes | None:
        """None when there is none."""
        if not self._files.exists(self._path(name)):
            return None
        stream = self._files.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def names(self) -> list[str]:
        try:
            listed = self._files.list(self._directory)
        except Py4JJavaError as failure:
            if "FileNotFoundException" in str(failure.java_exception):
                return []
            raise
        return [str(status.getPath().getName()) for status in listed]

    def remove(self, name: str) -> None:
        """Removes a name; a missing one is no error."""
        self._files.delete(self._path(name))

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._directory, name)
