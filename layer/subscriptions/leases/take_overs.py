"""Partitions that were taken over, until every member of the group has said what it holds of them, or is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pulsar_on_kafka.mapping.state.cursors.lease_records import MemberId, Nack, Report
from pulsar_on_kafka.subscriptions.records.chunks import HeldMessages
from pulsar_on_kafka.subscriptions.records.endpoint import Endpoint

Recalled = Mapping[tuple[MemberId, bytes], int]
"""The last recall's number, by member and owner."""


@dataclass(slots=True)
class Asked:
    """One such partition. `version` is that of its TAKE_OVER, `since_s` when that was written."""

    version: int
    since_s: float
    answered: set[str] = field(default_factory=set)
    """Client ids."""
    waits_for: frozenset[str] | None = None
    """Who was in the group whenever that was looked at since; None before. Who came later holds nothing."""
    voided: bool = False
    """All that was handed out is to come again, as after a seek: whatever members say to hold they do not."""
    recalled: Recalled = field(default_factory=dict)
    """By former owners: what was refused before that was heard does not count."""
    nacked: dict[int, Nack] = field(default_factory=dict)
    """Refused, and perhaps not known to be by a save; by offset."""
    held: dict[Endpoint, HeldMessages] = field(default_factory=dict)
    """What consumers hold, where only the active one may keep it, which is chosen when all have answered."""


class TakeOvers:
    """Memory: for each such partition the members that answered, what was refused since the last save, and, where a
    partition's messages go to one consumer at a time, what consumers hold."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._complete: list[int] = []
        self.asked: dict[int, Asked] = {}

    def begin(
        self, number: int, version: int, nacked: Mapping[int, Nack], now_s: float, recalled: Recalled | None = None
    ) -> None:
        """What this process holds itself it knows."""
        self.asked[number] = Asked(version, now_s, {self._client_id}, recalled=recalled or {}, nacked=dict(nacked))

    # What members say ---------------------------------------------------------------------------------------------

    def note_refusals(self, report: Report, partitions: Collection[int]) -> None:
        """What was refused before its holder answered is in nobody's hands: the former owner may have heard it."""
        client_id = report.member.client_id
        for number, asked in self.asked.items():
            waits = number in partitions and client_id not in asked.answered and not asked.voided
            if waits and has_heard(report.member, report.heard, asked.recalled):
                asked.nacked.update((nack.offset, nack) for nack in report.nacks.get(number, ()))

    def awaits(self, number: int, client_id: str) -> bool:
        """The partition waits for this member's answer."""
        asked = self.asked.get(number)
        return asked is not None and client_id not in asked.answered

    def is_answer(self, number: int, version: int, client_id: str) -> bool:
        """The partition waits for what this member holds since the TAKE_OVER of this version."""
        return self.awaits(number, client_id) and self.asked[number].version == version

    def answered(self, number: int, client_id: str) -> None:
        self.asked[number].answered.add(client_id)

    def begins(self, report: Report, partitions: Collection[int]) -> None:
        """Whoever begins behind the TAKE_OVER holds nothing of these: former owners heard that first, and one of them
        that keeps something said who it is before its last save. What it answers counts."""
        for number, asked in self.asked.items():
            if number in partitions and number not in report.answers:
                asked.answered.add(report.member.client_id)

    def holds_nothing(self, report: Report) -> None:
        """The answers of somebody that is no member here: whatever it says to hold comes again."""
        for number, held in report.answers.items():
            if self.is_answer(number, held.version, report.member.client_id):
                self.answered(number, report.member.client_id)

    def void(self, number: int) -> None:
        """All that was handed out of the partition is to come again."""
        asked = self.asked.get(number)
        if asked is not None:
            asked.voided = True
            asked.nacked.clear()
            asked.held.clear()

    # When it is enough --------------------------------------------------------------------------------------------

    def answered_by(self, client_ids: Collection[str], asked_s: float) -> list[tuple[int, Asked]]:
        """The partitions that wait for nobody, if these were the group's members at `asked_s` (monotonic) or after."""
        for asked in self.asked.values():
            if asked.since_s <= asked_s:
                before = asked.waits_for
                asked.waits_for = frozenset(client_ids) if before is None else before.intersection(client_ids)
        return [
            (number, asked)
            for number, asked in self.asked.items()
            if asked.waits_for is not None and asked.waits_for <= asked.answered
        ]

    def older_than(self, since_s: float) -> list[tuple[int, Asked]]:
        return [(number, asked) for number, asked in self.asked.items() if asked.since_s < since_s]

    def end(self, number: int) -> None:
        del self.asked[number]
        self._complete.append(number)

    def take_complete(self) -> list[int]:
        """Those that ended since the last call."""
        complete, self._complete = self._complete, []
        return complete


def has_heard(member: MemberId, heard: Mapping[bytes, int], recalled: Recalled) -> bool:
    """What the member said when it had `heard` so much of owners came behind all that they recalled."""
    return all(heard.get(owner, 0) >= last for (to, owner), last in recalled.items() if to == member)
