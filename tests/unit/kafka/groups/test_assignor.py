"""The assignment of one topic: at most one owner, balance, stickiness, and the end after two generations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.kafka.groups.assignor import MemberClaim, assign, read_claims
from pulsar_on_kafka.kafka.groups.consumer_protocol import encode_subscription
from tests.seeds import examples

NAMES = st.sampled_from([f"m-{number}" for number in range(6)])
CLAIMS = st.builds(
    MemberClaim, NAMES, st.booleans(), st.frozensets(st.integers(-1, 12), max_size=8), st.integers(-1, 4), st.booleans()
)
GROUPS = st.lists(CLAIMS, unique_by=lambda claim: claim.member_id, max_size=6)
SETTINGS = settings(max_examples=examples(300), deadline=None)


def next_claims(claims: list[MemberClaim], assigned: Mapping[str, tuple[int, ...]]) -> list[MemberClaim]:
    """The claims of the next generation: each member has what it was assigned, and gave up the rest."""
    return [claim._replace(owned=frozenset(assigned[claim.member_id]), generation=9) for claim in claims]


def takers(claims: list[MemberClaim]) -> list[MemberClaim]:
    """The members that get partitions."""
    subscribers = [claim for claim in claims if claim.subscribes]
    return [claim for claim in subscribers if not claim.yields] or subscribers


@given(st.integers(0, 12), GROUPS)
@SETTINGS
def test_a_partition_has_at_most_one_owner_and_none_beside_another_that_lists_it(
    count: int, claims: list[MemberClaim]
) -> None:
    assigned = assign(count, claims)
    assert set(assigned) == {claim.member_id for claim in claims}
    owners = Counter(partition for partitions in assigned.values() for partition in partitions)
    assert set(owners) <= set(range(count))
    assert not owners or max(owners.values()) == 1
    by_id = {claim.member_id: claim for claim in claims}
    for member_id, partitions in assigned.items():
        assert not partitions or by_id[member_id] in takers(claims)
        for partition in partitions:
            rivals = [each for each in claims if partition in each.owned and each.member_id != member_id]
            kept = partition in by_id[member_id].owned
            assert all(kept and each.generation < by_id[member_id].generation for each in rivals)


@given(st.integers(0, 12), GROUPS)
@SETTINGS
def test_two_generations_give_every_partition_an_owner_and_balance(count: int, claims: list[MemberClaim]) -> None:
    second = next_claims(claims, assign(count, claims))
    assigned = assign(count, second)
    sizes = [len(assigned[claim.member_id]) for claim in takers(claims)]
    assert sum(sizes) == (count if sizes else 0)
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert assign(count, next_claims(second, assigned)) == assigned, "a third generation moves nothing"


@given(st.integers(0, 12), GROUPS)
@SETTINGS
def test_a_member_keeps_its_own_up_to_its_share(count: int, claims: list[MemberClaim]) -> None:
    assigned = assign(count, claims)
    for claim in takers(claims):
        alone = {
            partition
            for partition in claim.owned & set(range(count))
            if all(
                partition not in each.owned or each.generation < claim.generation
                for each in claims
                if each.member_id != claim.member_id
            )
        }
        kept = set(assigned[claim.member_id]) & claim.owned
        assert kept >= alone or len(kept) >= count // len(takers(claims))


@given(st.integers(0, 12), GROUPS, st.randoms(use_true_random=False))
@SETTINGS
def test_the_order_of_the_members_does_not_matter(count: int, claims: list[MemberClaim], rng: Random) -> None:
    shuffled = list(claims)
    rng.shuffle(shuffled)
    assert assign(count, shuffled) == assign(count, claims)


def test_a_partition_moves_in_two_generations() -> None:
    first = [MemberClaim("a", True, frozenset(range(4)), 1), MemberClaim("b", True)]
    assert assign(4, first) == {"a": (0, 1), "b": ()}
    assert assign(4, next_claims(first, {"a": (0, 1), "b": ()})) == {"a": (0, 1), "b": (2, 3)}


def test_a_claim_of_an_older_generation_loses_and_no_third_member_gets_the_partition() -> None:
    claims = [MemberClaim("late", True, frozenset({0, 1}), 3), MemberClaim("owner", True, frozenset({0}), 5)]
    assert assign(2, claims) == {"late": (1,), "owner": (0,)}
    claims = [*claims, MemberClaim("new", True)]
    assert assign(3, claims) == {"late": (1,), "owner": (0,), "new": (2,)}
    # Its share is full: its partition 1 waits until the late member has given it up.
    claims = [MemberClaim("late", True, frozenset({0, 1}), 3), MemberClaim("owner", True, frozenset({0, 1}), 5)]
    assert assign(2, claims) == {"late": (), "owner": (0,)}


def test_claims_of_one_generation_are_all_given_up() -> None:
    claims = [MemberClaim("a", True, frozenset({0}), 5), MemberClaim("b", True, frozenset({0}), 5)]
    assert assign(1, claims) == {"a": (), "b": ()}


def test_a_member_that_yields_gets_nothing_beside_others() -> None:
    members = [("a", encode_subscription("t", {0, 1}, 4, yields=True)), ("b", encode_subscription("t", (), 4))]
    first = read_claims("t", members)
    assert first[0] == MemberClaim("a", True, frozenset({0, 1}), 4, yields=True)
    assert assign(2, first) == {"a": (), "b": ()}
    assert assign(2, next_claims(first, {"a": (), "b": ()})) == {"a": (), "b": (0, 1)}
    assert assign(2, first[:1]) == {"a": (0, 1)}


def test_members_that_cannot_be_read_or_subscribe_to_other_topics_get_nothing() -> None:
    members = [
        ("a", encode_subscription("t", {1}, 4)),
        ("b", encode_subscription("other", {0}, 4)),
        ("c", b"\x00\x03\x7f\xff\xff\xff"),
        ("d", b""),
    ]
    claims = read_claims("t", members)
    assert claims[0] == MemberClaim("a", True, frozenset({1}), 4)
    assert assign(2, claims) == {"a": (0, 1), "b": (), "c": (), "d": ()}
