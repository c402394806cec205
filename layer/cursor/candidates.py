"""Candidates for a cursor's newest state: a commit, a seek and a checkpoint may hold it, and one is chosen. Pure.

There are up to three: the group that serves it now, the group that served it in the other way (a subscription as a
whole, or partition by partition), and the checkpoint. Each take-over raises the version, so the highest one counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pulsar_on_kafka.base.errors import Corrupt
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.mapping.state.cursors.cursor_state import CommitMetadata

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """`metadata` is None for a commit that a Kafka tool made."""

    source: str
    commit: CommittedOffset
    metadata: CommitMetadata | None

    @property
    def place(self) -> tuple[int, int]:
        """Its version and save: higher is newer."""
        return (self.metadata.lineage.version, self.metadata.lineage.save) if self.metadata is not None else (0, 0)


def newest(own: Candidate | None, elsewhere: Candidate | None, checkpoint: Candidate | None) -> Candidate | None:
    """The one to go on from; None when there is none.

    A commit of a Kafka tool is a seek: in the group that serves now always, in the other one if that served last. It
    did when a checkpoint (each take-over and each orderly end writes one) is newer than what the group that serves now
    has.
    """
    if own is not None and own.metadata is None:
        return own
    states = [found for found in (own, elsewhere, checkpoint) if found is not None and found.metadata is not None]
    best = max(states, key=lambda found: found.place, default=None)  # the first of equals
    if elsewhere is not None and elsewhere.metadata is None and best is not own:
        return elsewhere
    return elsewhere if best is None else best


def checkpoint_beside(
    ask: Callable[[], CommittedOffset | None], own: CommittedOffset | None, elsewhere: CommittedOffset | None
) -> CommittedOffset | None:
    """The checkpoint, which `ask` gives, also where the group has a commit of ours: that may be an older one, which
    librdkafka sent again behind the last one while a partition was handed over.

    Raises:
        Corrupt: it cannot be read, and no commit of ours can stand in.
        StoreError: it cannot be had.
    """
    try:
        return ask()
    except Corrupt as failure:
        if own is None or elsewhere is not None or not own.metadata:
            raise
        _log.warning("a checkpoint beside a commit cannot be read: %s", failure)
        return None
