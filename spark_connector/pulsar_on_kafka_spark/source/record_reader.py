"""Reads the records of a plan on an executor, through librdkafka.

A worker process keeps its connection for the next task, which Spark's reuse of workers gives it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import compress
from time import monotonic
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Failed, KafkaPartition, OutOfRange, Records
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_spark.base.errors import DataLoss, NotReadable
from pulsar_on_kafka_spark.planning.offset_ranges import Range

FETCH_QUEUE_KBYTES: Final = 32 * 1024
"""Fetched ahead of a task, besides the batch that it works on."""
WITHOUT_RECORDS_S: Final = 120.0
WORTH_A_JUMP: Final = 20_000
"""Offsets; a smaller hole takes less time to read than to jump over."""

_log = logging.getLogger(__name__)

_BATCH: Final = 5_000
_POLL_S: Final = 0.5
_readers: dict[tuple[Any, ...], AssignedReader] = {}


def reader_of(settings: KafkaSettings) -> AssignedReader:
    """This process's connection to the cluster. One is kept, since a worker mostly reads from one cluster."""
    found = _readers.get(settings.identity)
    if found is None:
        for other in _readers.values():
            other.release()
        _readers.clear()
        config = settings.reader(fetch_queue_kbytes=FETCH_QUEUE_KBYTES)
        found = _readers[settings.identity] = AssignedReader(config, "reader of a Spark task", reserved=False)
    return found


def ranges_of(offsets: BitMap64) -> Iterator[Range]:
    """The ranges to fetch for these offsets: without holes that are worth a jump."""
    if not offsets:
        return
    start = int(offsets.min())
    last = int(offsets.max())
    while start <= last:
        end = _next_hole(offsets, start, last)
        yield Range(start, end)
        if end > last:
            return
        start = offsets[offsets.rank(end - 1)]


def _next_hole(offsets: BitMap64, start: int, last: int) -> int:
    """Where the first hole behind `start` that is worth a jump begins; behind `last` without one.

    Any such hole has a window of half its length without offsets, so windows are looked at, not offsets.
    """
    window = WORTH_A_JUMP // 2
    at = start
    while at <= last:
        if offsets.range_cardinality(at, at + window):
            at += window
            continue
        before = offsets.rank(at)
        end = offsets[before - 1] + 1
        if offsets[before] - end >= WORTH_A_JUMP:
            return end
        at = offsets[before]
    return last + 1


def read_records(
    settings: KafkaSettings, kafka_topic: str, partition: int, offsets: BitMap64, *, fail_on_data_loss: bool
) -> Iterator[list[Any]]:
    """The records at these offsets, in order, in batches of at most 5,000; what compaction removed is missing.

    Raises:
        DataLoss: Kafka has deleted some of them since the plan was made, unless it is not to fail.
        NotReadable: nothing came for two minutes, or Kafka refuses.
    """
    where = KafkaPartition(kafka_topic, partition)
    reader = reader_of(settings)
    try:
        for each in ranges_of(offsets):
            for batch in _read_range(reader, where, each, fail_on_data_loss=fail_on_data_loss):
                chosen = _chosen(batch, offsets)
                if chosen:
                    yield chosen
    except LayerError as failure:
        raise NotReadable(f"{where} cannot be read: {failure}") from failure
    finally:
        reader.drop_all()


def _read_range(
    reader: AssignedReader, where: KafkaPartition, whole: Range, *, fail_on_data_loss: bool
) -> Iterator[list[Any]]:
    """The time that the caller takes for a batch is not counted against the time-out."""
    reader.drop_all()
    reader.add({where: whole.start})
    position, silent_s = whole.start, 0.0
    while position < whole.end:
        began_s = monotonic()
        events = reader.poll(_BATCH, _POLL_S)
        silent_s = 0.0 if events else silent_s + monotonic() - began_s
        if silent_s > WITHOUT_RECORDS_S:
            raise NotReadable(f"{where}: no record came for {WITHOUT_RECORDS_S:.0f} s, reading from offset {position}")
        for event in events:
            match event:
                case Records(of, records) if of == where:
                    position = records[-1].offset() + 1
                    yield records if position <= whole.end else [r for r in records if r.offset() < whole.end]
                case EndOfLog(of, offset) if of == where and offset < whole.end:
                    raise DataLoss(
                        f"{where} ends at offset {offset}, and the read at {whole.end}: the log lost its end"
                    )
                case OutOfRange():
                    low, _ = reader.watermarks(where, WITHOUT_RECORDS_S)
                    if fail_on_data_loss or low <= position:
                        raise DataLoss(
                            f"{where}: the read stands at offset {position}, and Kafka has nothing below {low} any "
                            "more; failOnDataLoss=false continues there"
                        )
                    position = low
                    reader.seek({where: low})
                case Failed():
                    event.raise_or_log(_log, f"{where}")
                case _:
                    pass  # of a range that was read before


def _chosen(batch: Sequence[Any], offsets: BitMap64) -> list[Any]:
    """The records of a batch that the bitmap has, without a step of Python for each where it has all of them."""
    low, high = batch[0].offset(), batch[-1].offset() + 1
    count = offsets.range_cardinality(low, high)
    if count == high - low:
        return list(batch)
    if not count:
        return []
    inside = BitMap64()
    inside.add_range(low, high)
    wanted = set(offsets & inside)
    return list(compress(batch, map(wanted.__contains__, map(type(batch[0]).offset, batch))))
