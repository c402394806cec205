"""Ends or stops a worker process between two writes of a save."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, Final

from pulsar_on_kafka.broker.cursor import segments
from pulsar_on_kafka.broker.cursor.segments import CursorSegments
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.subscriptions.member.saving import CursorSaver
from pulsar_on_kafka.kafka.groups.wire_member import WireMember
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import paged_marker
from tests.chaos.wrapping import wrap

POINTS: Final = ("segments", "pages", "marker", "commit", "answer", "cleaning")
"""What comes next when the process ends: segments; pages of the marker's index; the marker; the commit; the owner's
learning of it; cleaning."""

_SAVES_BEFORE: Final = 3
_SMALL_RECORD_BYTES: Final = 1_000


class Cut:
    """`signal_name` comes at `point` of the third save that needs segments, or of a later one that comes by that point.
    Records are so small that markers get pages."""

    def __init__(self, point: str, signal_name: str, say: Callable[[str], None]) -> None:
        self._point = point
        self._signal = signal.Signals[signal_name]
        self._say = say
        self._saves = 0
        segments.LARGEST_RECORD_BYTES = _SMALL_RECORD_BYTES  # type: ignore[misc]
        self._before(CursorSegments, CursorSegments.write_ledgers, "segments")
        self._before(CursorSegments, CursorSegments.write_marker, "pages")
        self._before(segments, paged_marker, "marker")
        self._before(WireMember, WireMember.commit, "commit")
        self._before(WireMember, WireMember.commit_async, "commit")
        self._before(CursorSaver, CursorSaver._accepted, "answer")
        self._before(CursorStore, CursorStore.clean, "cleaning")

    def _before(self, owner: Any, function: Callable[..., Any], point: str) -> None:
        def cut(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            self._saves += point == "segments"
            if self._saves >= _SAVES_BEFORE and point == self._point:
                self._point = ""
                self._say(point)
                os.kill(os.getpid(), self._signal)
            return original(*arguments, **named)

        wrap(owner, function, cut)
