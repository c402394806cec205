"""What an owner tells members about its saves, and which save a member waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from layer.dispatch.partition import OwnedPartition
from mapping.state_records.leases import LeaseRecord, Saved

Say = Callable[[int, LeaseRecord], None]
"""(partition, or EVERYBODY; record)."""


class SaveNotices:
    """`owned` is the owner's own dictionary, seen from here. Memory: a number for each partition."""

    def __init__(self, owner: bytes, owned: Mapping[int, OwnedPartition], say: Say) -> None:
        self._owner = owner
        self._owned = owned
        self._say = say
        self._announced: dict[int, int] = {}
        self._wanted: int | None = None
        """Offset of the last report that waits for a save."""

    @property
    def awaited(self) -> bool:
        return self._wanted is not None

    def want(self, offset: int) -> None:
        """The report at this offset waits until a save of every partition holds it."""
        self._wanted = offset

    def gave_up(self, number: int) -> None:
        self._announced.pop(number, None)

    def saved(self, owned: OwnedPartition, *, anybody_waits: bool) -> None:
        """The group has accepted a save: tell members what they acknowledged durably."""
        number, upto = owned.slot.number, owned.saves.saved.leased_from
        if self._wanted is not None and all(self._holds(each, self._wanted) for each in self._owned.values()):
            self._wanted = None
        if upto is None or not anybody_waits or self._announced.get(number) == upto:
            return
        self._announced[number] = upto
        self._say(number, Saved(self._owner, owned.saves.saved.lineage.version, upto))

    def _holds(self, owned: OwnedPartition, offset: int) -> bool:
        """The last accepted save has the report at this offset."""
        upto = owned.saves.saved.leased_from
        return upto is None or upto > offset
