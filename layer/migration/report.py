"""The report of a migration compares a tenant's data on both clusters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka.migration.sides import Compared


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """`cursors_differ`: subscriptions whose acknowledgements are not the same on both sides."""

    topic: str
    partition: int
    compared: Compared
    cursors_differ: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """`lacking`: what of the source's metadata the target has not, one sentence each. `not_moved`: what somebody else
    has to see to, which keeps nobody from switching."""

    lacking: tuple[str, ...]
    partitions: tuple[PartitionReport, ...]
    not_moved: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """The target has everything of the source, and the same."""
        return not self.lacking and all(each.compared.good and not each.cursors_differ for each in self.partitions)

    def problems(self) -> list[str]:
        """One sentence each."""
        found = list(self.lacking)
        for each in self.partitions:
            if not each.compared.good:
                found.append(
                    f"{each.topic} partition {each.partition}: {each.compared.missing} messages are missing, "
                    f"{each.compared.changed} differ, the first at offset {each.compared.first}"
                )
            if each.cursors_differ:
                names = ", ".join(each.cursors_differ)
                found.append(f"{each.topic} partition {each.partition}: acknowledgements of {names} differ")
        return found
