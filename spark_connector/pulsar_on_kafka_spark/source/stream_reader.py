"""The stream reader of the data source. Spark calls it in a Python process beside the driver, as long as a query runs.

An offset is a `StreamOffset` with the plan of the batch that ends there, since a source has no place of its own in the
checkpoint. So Spark may plan a batch as often as it likes, also after a restart: the rows are the same. Spark passes a
batch's end as the next one's start when the batch is on record as done; it is acknowledged then.

Before version 4.2 Spark passes no start, so that a restarted query does not know its position while it plans. It plans
everything that may be delivered, and leaves out what lies before the start once it learns that (`start_known`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_on_kafka_spark.acknowledging.acknowledge import acknowledge_entries
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.stream_options import StreamOptions, parse_stream_options
from pulsar_on_kafka_spark.planning.batch_plan import ByTopic, Pending, accepted, both
from pulsar_on_kafka_spark.reading.connection import node_of
from pulsar_on_kafka_spark.reading.named_topics import schemas_of
from pulsar_on_kafka_spark.reading.tenant_cluster import on_cluster
from pulsar_on_kafka_spark.source.partition_plan import PartitionPlan
from pulsar_on_kafka_spark.source.planned_offset import PlannedOffset, delivered_between, parse_planned
from pulsar_on_kafka_spark.source.record_batches import record_batches
from pulsar_on_kafka_spark.source.source_plans import check_source, look, plans_of
from pulsar_on_kafka_spark.streaming.stream_offset import StreamOffset, parse_offset
from pulsar_on_kafka_spark.streaming.stream_planner import TopicPlanner
from pulsar_on_kafka_spark.streaming.stream_topics import check_lives, views_of_plan

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS: Final = True
except ImportError:  # before Spark 4.2
    HAS_LIMITS: Final = False  # type: ignore[misc]


class StreamReader(DataSourceStreamReader):
    """The reader before Spark 4.2, and what the later one has in common with it.

    Only options are pickled. They are checked, and the connection is opened, by the first call that plans: before 4.2
    Spark does not report an error of `DataSource.streamReader`.
    """

    def __init__(self, given: Mapping[str, str], columns: StructType) -> None:
        self._given = dict(given)
        self._columns = columns
        self._planning: _Planning | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._given, self._columns)

    def _opened(self) -> _Planning:
        if self._planning is None:
            self._planning = _Planning(stream_options(self._given), self._columns)
        return self._planning

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._opened().first()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802
        return self._opened().next_end_of_known()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._opened().plans(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return record_batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._opened().settle(end)

    def stop(self) -> None:
        planning, self._planning = self._planning, None
        if planning is not None:
            planning.close()


if HAS_LIMITS:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """The reader from Spark 4.2 on, which knows a batch's start, limits and `availableNow`."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """Any limit but "all", which `Trigger.Once` requests; the planner knows the actual one."""
            return ReadMaxRows(2**62)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override] # noqa: N802
            return self._opened().next_end(start, limited=not isinstance(limit, ReadAllAvailable))

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
            return self._opened().newest()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._opened().fix_end()


def stream_reader(given: Mapping[str, str], columns: StructType) -> StreamReader:
    """The reader for this version of Spark."""
    return LimitedStreamReader(given, columns) if HAS_LIMITS else StreamReader(given, columns)


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of a stream by the data source, which are texts.

    Raises:
        InvalidReadOption: see `parse_stream_options` and `check_source`; or this version of Spark has no limits.
    """
    options = parse_stream_options(given)
    check_source(options.read)
    limits = {
        "maxOffsetsPerTrigger": options.max_entries,
        "minOffsetsPerTrigger": options.min_entries,
        "maxBytesPerTrigger": options.max_bytes,
    }
    for name, limit in limits.items():
        if limit is not None and not HAS_LIMITS:
            raise InvalidReadOption(
                f"option {name} is given, and Python data sources have limits from Spark 4.2 on: use stream_pulsar"
            )
    return options


class _Planning:
    """The connected part of a stream reader, for one thread."""

    def __init__(self, options: StreamOptions, columns: StructType) -> None:
        with ExitStack() as stack:
            self._options = options = replace(options, read=on_cluster(options.read))
            self._node = stack.enter_context(node_of(options.read))
            self._planner = TopicPlanner(self._node, options, partial(look, self._node))
            self._planner.when_stopped = stack.pop_all()
        self._columns = columns
        self._passed: ByTopic = {}
        """`BatchPlan.passed` of the batch that was planned last here, until it is acknowledged."""
        self._known: dict[str, Any] | None = None
        """The last offset that Spark has passed, or was given."""
        self._settled: dict[str, Any] | None = None
        """The offset up to which everything is acknowledged; None: nothing was, in this process."""

    def first(self) -> dict[str, Any]:
        self._known = json.loads(self._planner.first())
        return self._known

    def newest(self) -> dict[str, Any] | None:
        newest = self._planner.newest()
        return None if newest is None else json.loads(newest)

    def fix_end(self) -> None:
        self._planner.fix_end()

    def next_end(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """The end of the next batch; `start` itself where there is nothing. Everything before `start` is done, and is
        acknowledged."""
        self.settle(start)
        self._known = start
        begun = parse_planned(start)
        return self._planned(start, begun.position.json(), begun.pending, limited=limited, start_known=True)

    def next_end_of_known(self) -> dict[str, Any]:
        """The same where Spark passes no start."""
        if self._known is not None:
            return self.next_end(self._known, limited=False)
        nowhere = StreamOffset({}, cluster=self._options.read.cluster).json()
        return self._planned(json.loads(nowhere), nowhere, {}, limited=False, start_known=False)

    def _planned(
        self, start: dict[str, Any], begun: str, pending: Pending, *, limited: bool, start_known: bool
    ) -> dict[str, Any]:
        end = self._planner.next_end(begun, limited=limited)
        if end == begun:
            return start
        plan = self._planner.plan(begun, end, pending)
        self._passed = plan.passed
        cursors = {name: place.ends for name, place in parse_offset(self._planner.first()).topics.items()}
        found = PlannedOffset(parse_offset(end), plan.delivered, plan.pending, cursors, start_known)
        return found.to_dict()

    def plans(self, start: dict[str, Any], end: dict[str, Any]) -> list[PartitionPlan]:
        """The tasks of a batch, which depend on its offsets alone."""
        self._known = end
        begun, ended = parse_planned(start), parse_planned(end)
        read = self._options.read
        if start == end or not ended.position.is_of(read.cluster):
            return []  # after a move later batches have what was not acknowledged
        if begun.position.is_of(read.cluster):
            check_lives(self._node, read, begun.position)
        delivered = delivered_between(begun, ended, acknowledges=self._options.acknowledge)
        views = views_of_plan(self._node, read, delivered, ended.position, {})
        schemas = schemas_of(self._node, read, [view.topic.name for view in views])
        return plans_of(read, views, schemas, self._columns)

    def settle(self, end: dict[str, Any]) -> None:
        """Acknowledges the batch that ends here, once: Spark has it on record as done.

        Raises:
            NotReadable: its acknowledgements are not known to be durable.
        """
        if not self._options.acknowledge or self._settled == end:
            return
        done = parse_planned(end)
        if done.delivered and done.position.is_of(self._options.read.cluster):
            self._planner.check_moves()
            check_lives(self._node, self._options.read, done.position)
            acknowledge_entries(self._node, self._options, both(self._of_this_cursor(done), self._passed))
            self._passed = {}
        self._settled = end

    def _of_this_cursor(self, done: PlannedOffset) -> ByTopic:
        """The batch's messages, without those of partitions that were sought back while no query ran: they are to be
        delivered again."""
        accepted_now = accepted(done.delivered, {})
        if self._settled is not None:
            return accepted_now
        now = parse_offset(self._planner.first())
        return {
            name: {
                p: entries
                for p, entries in partitions.items()
                if now.ends(name).get(p, 0) >= done.cursors.get(name, {}).get(p, 0)
            }
            for name, partitions in accepted_now.items()
        }

    def close(self) -> None:
        self._planner.stop()
