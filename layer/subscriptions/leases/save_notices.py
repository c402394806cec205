"""An owner tells members about its saves, and knows which save a member waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pulsar_on_kafka.mapping.state.cursors.lease_records import LeaseRecord, Saved
from pulsar_on_kafka.subscriptions.partition.partition import OwnedPartition

Say = Callable[[int, LeaseRecord], None]
"""(partition, or EVERYBODY; record)."""


class SaveNotices:
    """Whoever acknowledged something by a report, a member or not, is told that it is durable.

    `owned` is the owner's own dictionary, seen from here. Memory: two numbers for each partition.
    """

    def __init__(self, owner: bytes, owned: Mapping[int, OwnedPartition], say: Say) -> None:
        self.owner = owner
        self._owned = owned
        self._say = say
        self._announced: dict[int, int] = {}
        self._untold: set[int] = set()
        """Partitions of which reports acknowledged something, or asked for a save, since the last announcement."""
        self._wanted: int | None = None
        """Offset of the last report that waits for a save."""

    @property
    def awaited(self) -> bool:
        """A member waits for a save."""
        return self._wanted is not None

    @property
    def in_use(self) -> bool:
        """The next save of some partition is to be announced."""
        return bool(self._untold)

    def heard(self, number: int) -> None:
        """A report acknowledged something of this partition."""
        self._untold.add(number)

    def want(self, offset: int) -> None:
        """The report at this offset waits until a save of every partition holds it."""
        self._wanted = offset
        self._untold.update(self._owned)

    def gave_up(self, number: int) -> None:
        self._announced.pop(number, None)
        self._untold.discard(number)
        if not self._owned:
            self._wanted = None

    def not_written(self) -> None:
        """What was announced last may not be in the log."""
        self._untold.update(self._announced)
        self._announced.clear()

    def saved(self, owned: OwnedPartition) -> None:
        """The group has accepted a save: tell members what they acknowledged durably."""
        number, upto = owned.number, owned.saved.leased_from
        if upto is None:
            return  # the next one says from where on reports are not in it
        if self._wanted is not None and all(self._holds(each, self._wanted) for each in self._owned.values()):
            self._wanted = None
        if number not in self._untold or self._announced.get(number) == upto:
            return
        self._announced[number] = upto
        if upto >= owned.acks_known:
            self._untold.discard(number)
        self._say(number, Saved(self.owner, owned.version, upto, owned.folded_since))

    def _holds(self, owned: OwnedPartition, offset: int) -> bool:
        """The last accepted save has the report at this offset."""
        upto = owned.saved.leased_from
        return upto is not None and upto > offset
