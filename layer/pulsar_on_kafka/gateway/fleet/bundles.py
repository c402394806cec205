"""Bundles of topics and the gateways that serve them, as one gateway knows them: no I/O.

A topic, or a partition of one, is in one of 64 bundles. The gateways of a fleet are members of a Kafka group, which
assigns each bundle to one of them; a member's client id has its address. A gateway knows its own bundles by what the
group assigns, others' by the group's description. Two that serve a bundle at once do no harm, because cursors and
producers have owners of their own. So a gateway that has lost a bundle serves it until it knows the new gateway.
Decision: mapping/decisions/0029.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES

BUNDLES: Final = DELIVERIES.partitions
"""The group assigns the partitions of that topic, which are not read."""
FRESH_S: Final = 1.0
"""A description of the group is used for this time."""
NEW_S: Final = 4.0
"""The former gateway of a bundle may hold its subscriptions for this time: its memberships end one by one."""
DISCONNECTED_S: Final = 2.0
"""A gateway loses its bundles 6 s after its last heartbeat. It counts as disconnected this long after that, if it
cannot find out which gateways serve them."""

_BEGINS: Final = "pok-gateway="


def bundle_of(topic: str) -> int:
    """Raises InvalidTopicName."""
    return DELIVERIES.partition_for(str(TopicName.parse(topic)))


def member_name(url: str) -> str:
    """Begins the client id of a gateway's membership; a session and its process follow (`member_client_id`)."""
    return f"{_BEGINS}{url}"


def url_of(client_id: str) -> str:
    """The address of the gateway that has this membership; '' for another client id."""
    name, _, _ = client_id.partition("@")
    return name.removeprefix(_BEGINS).rpartition("-")[0] if name.startswith(_BEGINS) else ""


@dataclass(frozen=True, slots=True)
class FleetMember:
    """A live member of the fleet's group, as Kafka describes it. `ours`: the membership is this gateway's own."""

    url: str
    bundles: Collection[int]
    ours: bool


class Bundles:
    """The bundles of topics and their gateways, as the gateway at `url` knows them. Not thread-safe.

    Memory: the addresses of 64 bundles.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._own: set[int] = set()
        self._taken_s: dict[int, float] = {}
        """The times at which bundles were taken over from other gateways."""
        self._seen: dict[int, str] = {}
        """The gateway of each bundle, by the last description of the whole group."""
        self._alone = False
        """No other gateway exists, so this one serves every bundle."""
        self._seen_s = 0.0
        self._received_s = 0.0
        """The time of Kafka's last description of the group, also during a rebalance."""
        self._lost_s: float | None = None
        self._settled = False
        self._leaving = False

    # What happens -------------------------------------------------------------------------------------------------

    def assigned(self, bundles: Iterable[int], now_s: float) -> None:
        """The group has assigned these bundles."""
        for bundle in bundles:
            if self._seen.get(bundle, self.url) != self.url:
                self._taken_s[bundle] = now_s
            self._own.add(bundle)
        self._settled = False

    def revoked(self, bundles: Iterable[int], now_s: float) -> None:
        self._own.difference_update(bundles)
        self._settled = False
        if self._lost_s is None:
            self._lost_s = now_s

    def leave(self) -> None:
        """The gateway has left the group: it owns no bundle from now on."""
        self._leaving = True
        self._own.clear()
        self._settled = False

    def described(self, members: Collection[FleetMember], now_s: float, *, stable: bool) -> None:
        """Apply Kafka's description of the group. During a rebalance the description lacks the members' bundles."""
        self._received_s = now_s
        alone = all(member.ours for member in members)
        if not (alone or stable):
            self._settled = False
            return
        self._seen = {bundle: member.url for member in members for bundle in member.bundles}
        self._alone = alone
        self._seen_s, self._lost_s = now_s, None
        ours = {bundle for member in members if member.ours for bundle in member.bundles}
        # This gateway's own assignment may be newer than the description.
        self._settled = ours == self._own and (alone or len(self._seen) == BUNDLES)

    # What follows -------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether the description is complete, so that Kafka need not be asked."""
        return self._settled

    @property
    def handed_over(self) -> bool:
        """This gateway has left, and other gateways serve all bundles, or there is no other gateway."""
        return self._leaving and self._settled

    def known(self, bundle: int, now_s: float) -> str | None:
        """The gateway that serves the bundle. None: Kafka has to describe the group first."""
        if bundle in self._own:
            return self.url
        fresh = self._settled and now_s - self._seen_s <= FRESH_S
        return self.owner(bundle, now_s) if fresh else None

    def owner(self, bundle: int, now_s: float) -> str | None:
        """The gateway that serves the bundle, as far as is known. None: no gateway does now."""
        if bundle in self._own:
            return self.url
        found = self.url if self._alone else self._seen.get(bundle)
        return None if found == self.url and (self._leaving or self.is_disconnected(now_s)) else found

    def elsewhere(self, bundle: int) -> str | None:
        """The other gateway that serves the bundle, for its clients."""
        found = None if bundle in self._own else self._seen.get(bundle)
        return None if found == self.url else found

    def is_new(self, bundle: int, now_s: float) -> bool:
        """Whether the bundle came from another gateway a moment ago."""
        return bundle in self._own and now_s - self._taken_s.get(bundle, -NEW_S) < NEW_S

    def others(self) -> set[str]:
        """The addresses of all other gateways that serve anything."""
        return set(self._seen.values()) - {self.url}

    def is_disconnected(self, now_s: float) -> bool:
        """Other gateways serve the former bundles of this one, which cannot find out which gateways."""
        lost = self._lost_s is not None and now_s - max(self._lost_s, self._received_s) >= DISCONNECTED_S
        return lost and not self._alone
