"""The offsets of the data source: where a stream stands, and what the batch that ends there delivers. Pure.

    {"v":1,"again":0,"of":0,"topics":{...},"plan":"<batch_plan.encode_plan>","cursors":{"<topic>":{"0":17}}}

A `StreamOffset` with three more members, which are missing in the first offset of a stream: the plan, as text; the
cursors' mark-delete positions when it was made; and `"start_known":false` where it was made without a start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka_spark.planning.batch_plan import BatchPlan, ByTopic, Entries, Pending, decode_plan, encode_plan
from pulsar_on_kafka_spark.streaming.stream_offset import StreamOffset, parse_offset

Cursors = Mapping[str, Mapping[int, int]]
"""The offset behind the mark-delete position, by topic and partition."""


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """`delivered` and `pending` as in `BatchPlan`; `start_known`: whether the plan was made from the batch's start."""

    position: StreamOffset
    delivered: ByTopic = field(default_factory=dict)
    pending: Pending = field(default_factory=dict)
    cursors: Cursors = field(default_factory=dict)
    start_known: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The form that Spark stores."""
        plan = encode_plan(BatchPlan("", "", self.delivered, self.pending)).decode()
        cursors = {name: {str(p): at for p, at in each.items()} for name, each in self.cursors.items()}
        known = {} if self.start_known else {"start_known": False}
        return {**json.loads(self.position.json()), "plan": plan, "cursors": cursors, **known}


def parse_planned(stored: Mapping[str, Any]) -> PlannedOffset:
    """Raises NotReadable: something else, or a later version, wrote it."""
    position = parse_offset(json.dumps(stored))
    if "plan" not in stored:
        return PlannedOffset(position)
    plan = decode_plan(str(stored["plan"]).encode(), "offset log")
    cursors = {str(name): {int(p): int(at) for p, at in each.items()} for name, each in stored["cursors"].items()}
    return PlannedOffset(position, plan.delivered, plan.pending, cursors, bool(stored.get("start_known", True)))


def delivered_between(start: PlannedOffset, end: PlannedOffset, *, acknowledges: bool) -> ByTopic:
    """The messages of the batch between two offsets.

    A plan that was made without a start has all messages that may be delivered: those of the batch before are left out,
    and where the stream `acknowledges` nothing, all those below the start.
    """
    if end.start_known:
        return end.delivered
    found: dict[str, dict[int, Entries]] = {}
    for name, partitions in end.delivered.items():
        for partition, entries in partitions.items():
            before = start.delivered.get(name, {}).get(partition)
            whole = entries.whole if before is None else entries.whole - before.whole
            if not acknowledges:
                below = BitMap64()
                below.add_range(0, start.position.ends(name).get(partition, 0))
                whole = whole - below
            if whole:
                found.setdefault(name, {})[partition] = replace(
                    entries,
                    whole=whole,
                    batches={offset: bits for offset, bits in entries.batches.items() if offset in whole},
                    chunked={last: message for last, message in entries.chunked.items() if last in whole},
                )
    return found
