"""Spark's scheduler tells whether every task of a Spark job ran once.

A task that fails, or is run twice by speculation, has perhaps written records already, and Spark's Kafka sink never
takes them back. Within a transaction that shows: unless every task of the job ran exactly once, from beginning to end,
the transaction is aborted. Told by what Spark's scheduler keeps for its web interface, which it also keeps without one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.spark.base.errors import InvalidWriteOption

_PATIENCE_S: Final = 30.0
_DROPPED: Final = "appStatus.numDroppedEvents"


class JobAttempts:
    """The attempts of one job of the current thread are watched."""

    def __init__(self, spark: SparkSession) -> None:
        """Raises InvalidWriteOption: the session runs tasks twice as it likes."""
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
        """Why it cannot be said that each of the job's tasks ran once; '' where it can. After a job that succeeded."""
        found = list(self._scheduler.statusTracker().getJobIdsForTag(self._tag))
        if not found:
            return "Spark knows nothing of the job"
        store = self._scheduler.statusStore()
        job = max(found)  # those before it prepared its input, and wrote nothing

        def succeeded() -> bool:
            return str(store.job(job).status()) == "SUCCEEDED"

        if not wait_until(succeeded, Deadline.after(_PATIENCE_S)):
            return f"Spark says of job {job} that it is {store.job(job).status()}"
        stages = store.job(job).stageIds()
        if stages.size() == 0:
            return ""  # nothing was there to write
        number = max(stages.apply(at) for at in range(stages.size()))  # so did those before it

        def complete() -> bool:
            return str(store.lastStageAttempt(number).status()) == "COMPLETE"

        if not wait_until(complete, Deadline.after(_PATIENCE_S)):
            return f"Spark says of stage {number} that it is {store.lastStageAttempt(number).status()}"
        stage = store.lastStageAttempt(number)
        if self._dropped_events() != self._dropped:
            return "Spark dropped events of its scheduler"
        told = {
            "attempts before this one": stage.attemptId(),
            "failed tasks": stage.numFailedTasks(),
            "killed tasks": stage.numKilledTasks(),
            "running tasks": stage.numActiveTasks(),
            "tasks too many": stage.numCompleteTasks() - stage.numTasks(),
        }
        return ", ".join(f"{count} {what}" for what, count in told.items() if count)

    def _dropped_events(self) -> int:
        counters = self._scheduler.listenerBus().metrics().metricRegistry().getCounters()
        return sum(
            int(counters.get(name).getCount()) for name in counters.keySet().toArray() if str(name).endswith(_DROPPED)
        )
