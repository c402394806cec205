"""The leader's assignment of one topic's partitions, compatible with librdkafka's cooperative-sticky. Pure.

A partition moves in two generations. The first one takes it from its owner and gives it to no member. The owner saves,
and joins again without the partition. The second generation gives it to its next owner. So a partition that any other
member lists as owned is never given away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pulsar_on_kafka.kafka.groups.consumer_protocol import NO_GENERATION, decode_subscription
from pulsar_on_kafka_mapping.errors import CorruptRecord


class MemberClaim(NamedTuple):
    """The partitions that a member owns since `generation`. Only a member that `subscribes` gets partitions, and one
    that `yields` only if all members do."""

    member_id: str
    subscribes: bool
    owned: frozenset[int] = frozenset()
    generation: int = NO_GENERATION
    yields: bool = False


def read_claims(topic: str, members: Iterable[tuple[str, bytes]]) -> list[MemberClaim]:
    """The claims of a generation's members, by member id and subscription.

    A member whose subscription cannot be read gets no partition, and the others are served all the same. Kafka accepts
    any bytes, so one such member would otherwise stop the group.
    """
    claims = []
    for member_id, metadata in members:
        try:
            subscription = decode_subscription(metadata)
        except CorruptRecord:
            claims.append(MemberClaim(member_id, False))
        else:
            owned = frozenset(partition for name, partition in subscription.owned if name == topic)
            subscribes = topic in subscription.topics
            claims.append(MemberClaim(member_id, subscribes, owned, subscription.generation, subscription.yields))
    return claims


def assign(partition_count: int, claims: Sequence[MemberClaim]) -> dict[str, tuple[int, ...]]:
    """The partitions of each member, in ascending order.

    A member keeps its partitions up to its share, and the shares differ by one at most. Of several claims to a
    partition the one of the newest generation counts. Claims of the same generation do not count: their members give
    the partition up. The result does not depend on the order of `claims`.
    """
    subscribers = sorted(claim.member_id for claim in claims if claim.subscribes and not claim.yields)
    subscribers = subscribers or sorted(claim.member_id for claim in claims if claim.subscribes)
    assigned: dict[str, tuple[int, ...]] = {claim.member_id: () for claim in claims}
    if not subscribers:
        return assigned
    listed = _listed(partition_count, claims)
    kept = _kept(subscribers, listed)
    share, larger_shares = divmod(partition_count, len(subscribers))
    shares = {
        member_id: share + (place < larger_shares)
        for place, member_id in enumerate(sorted(subscribers, key=lambda each: (-len(kept[each]), each)))
    }
    planned = {member_id: kept[member_id][: shares[member_id]] for member_id in subscribers}
    staying = {partition for partitions in planned.values() for partition in partitions}
    free = iter(partition for partition in range(partition_count) if partition not in staying)
    for member_id in subscribers:
        gained = [next(free) for _ in range(shares[member_id] - len(planned[member_id]))]
        allowed = [partition for partition in gained if all(each == member_id for _, each in listed.get(partition, ()))]
        assigned[member_id] = tuple(sorted(planned[member_id] + allowed))
    return assigned


def _listed(partition_count: int, claims: Iterable[MemberClaim]) -> Mapping[int, list[tuple[int, str]]]:
    """Generation and member id of each claim to a partition."""
    listed: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for claim in claims:
        for partition in claim.owned:
            if 0 <= partition < partition_count:
                listed[partition].append((claim.generation, claim.member_id))
    return listed


def _kept(subscribers: Sequence[str], listed: Mapping[int, list[tuple[int, str]]]) -> Mapping[str, list[int]]:
    """The partitions that each subscriber holds by the newest claim."""
    kept: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
    for partition, claims in sorted(listed.items()):
        newest, holder = max(claims)
        if holder in kept and sum(generation == newest for generation, _ in claims) == 1:
            kept[holder].append(partition)
    return kept
