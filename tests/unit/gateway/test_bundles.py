"""What one gateway of a fleet knows of bundles."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base.processes import member_client_id
from pulsar_on_kafka.gateway.fleet.bundles import (
    BUNDLES,
    DISCONNECTED_S,
    FRESH_S,
    NEW_S,
    Bundles,
    FleetMember,
    bundle_of,
    member_name,
    url_of,
)
from pulsar_on_kafka.gateway.handlers.client_moves import address_field
from pulsar_on_kafka_mapping.errors import InvalidTopicName

HERE, THERE = "pulsar://here:6650", "pulsar+ssl://there:6651"
ALL = range(BUNDLES)


def known(*own: int, members: tuple[FleetMember, ...] = (), stable: bool = True) -> Bundles:
    bundles = Bundles(HERE)
    bundles.assigned(own, 1.0)
    bundles.described(members, 1.0, stable=stable)
    return bundles


def us(*bundles: int) -> FleetMember:
    return FleetMember(HERE, bundles, True)


def them(*bundles: int) -> FleetMember:
    return FleetMember(THERE, bundles, False)


def test_a_bundle_belongs_to_a_partition_however_it_is_named() -> None:
    assert bundle_of("t-partition-3") == bundle_of("persistent://public/default/t-partition-3")
    assert bundle_of("t-partition-3") != bundle_of("non-persistent://public/default/t-partition-3")
    assert {bundle_of(f"t-partition-{number}") for number in range(2_000)} == set(ALL)
    with pytest.raises(InvalidTopicName):
        bundle_of("a/b")


def test_a_client_id_tells_the_address() -> None:
    assert url_of(member_client_id(member_name(THERE), "0123456789abcdef")) == THERE
    assert url_of(member_client_id("program", "0123456789abcdef")) == ""


def test_an_address_stands_in_the_field_of_its_kind() -> None:
    assert address_field("brokerServiceUrl", HERE) == {"brokerServiceUrl": HERE}
    assert address_field("brokerServiceUrl", THERE) == {"brokerServiceUrlTls": THERE}


def test_one_alone_serves_everything_before_it_is_a_member() -> None:
    assert known(members=(), stable=False).known(5, 1.0) == HERE
    assert known(members=(us(),), stable=False).known(5, 1.0) == HERE


def test_one_of_several_serves_what_it_is_assigned() -> None:
    bundles = known(*range(32), members=(us(*range(32)), them(*range(32, 64))))
    assert (bundles.known(3, 1.0), bundles.known(40, 1.0)) == (HERE, THERE)
    assert (bundles.elsewhere(3), bundles.elsewhere(40)) == (None, THERE)


def test_who_serves_other_bundles_is_asked_again_after_a_while() -> None:
    bundles = known(*range(32), members=(us(*range(32)), them(*range(32, 64))))
    assert bundles.known(40, 1.1 + FRESH_S) is None
    assert bundles.known(3, 1.1 + FRESH_S) == HERE


def test_a_group_in_the_middle_of_a_change_says_nothing_of_others() -> None:
    bundles = known(members=(us(), them()), stable=False)
    assert (bundles.known(5, 1.0), bundles.owner(5, 1.0), bundles.settled) == (None, None, False)


def test_what_was_lost_is_served_until_another_one_has_it() -> None:
    bundles = known(*ALL, members=(us(*ALL),))
    bundles.revoked([5], 2.0)
    bundles.described((us(), them()), 2.0, stable=False)
    assert (bundles.owner(5, 2.0), bundles.elsewhere(5), bundles.settled) == (HERE, None, False)
    others = [bundle for bundle in ALL if bundle != 5]
    bundles.described((us(*others), them()), 2.1, stable=True)
    assert (bundles.owner(5, 2.1), bundles.elsewhere(5), bundles.settled) == (None, None, False)
    bundles.described((us(*others), them(5)), 2.2, stable=True)
    assert (bundles.owner(5, 2.2), bundles.elsewhere(5), bundles.settled) == (THERE, THERE, True)


def test_a_description_from_before_an_assignment_is_not_the_last() -> None:
    bundles = known(*ALL, members=(us(*range(32)), them(*range(32, 64))))
    assert (bundles.settled, bundles.elsewhere(40)) == (False, None)
    bundles = known(*range(32), members=(us(*ALL),))
    assert not bundles.settled


def test_another_process_at_the_same_address_is_as_good() -> None:
    bundles = known(*range(32), members=(us(*range(32)), FleetMember(HERE, range(32, 64), False)))
    assert (bundles.known(40, 1.0), bundles.elsewhere(40)) == (HERE, None)


def test_a_gateway_that_cannot_describe_the_group_is_disconnected_after_a_while() -> None:
    bundles = known(*range(32), members=(us(*range(32)), them(*range(32, 64))))
    bundles.revoked(range(32), 10.0)
    assert not bundles.is_disconnected(9.9 + DISCONNECTED_S)
    assert bundles.owner(3, 10.0) == HERE
    assert bundles.is_disconnected(10.0 + DISCONNECTED_S)
    assert bundles.owner(3, 10.0 + DISCONNECTED_S) is None
    bundles.described((us(), them()), 20.0, stable=False)
    assert not bundles.is_disconnected(20.0)


def test_one_alone_is_never_disconnected() -> None:
    bundles = known(*ALL, members=(us(*ALL),))
    bundles.revoked(ALL, 10.0)
    assert not bundles.is_disconnected(100.0)
    assert bundles.owner(3, 100.0) == HERE


def test_who_leaves_has_handed_over_when_others_have_everything() -> None:
    bundles = known(*range(32), members=(us(*range(32)), them(*range(32, 64))))
    bundles.leave()
    bundles.described((us(*range(32)), them(*range(32, 64))), 2.0, stable=True)
    assert not bundles.handed_over
    bundles.described((them(*ALL),), 2.1, stable=True)
    assert (bundles.handed_over, bundles.owner(3, 2.1)) == (True, THERE)


def test_who_leaves_alone_has_nobody_to_hand_over_to() -> None:
    bundles = known(*ALL, members=(us(*ALL),))
    bundles.leave()
    bundles.described((), 2.0, stable=True)
    assert (bundles.handed_over, bundles.owner(3, 2.0), bundles.elsewhere(3)) == (True, None, None)


def test_a_bundle_that_another_one_had_is_new_for_a_while() -> None:
    bundles = known(*range(32), members=(us(*range(32)), them(*range(32, 64))))
    assert not bundles.is_new(40, 10.0)
    bundles.assigned(range(32, 64), 10.0)
    assert (bundles.is_new(40, 10.1), bundles.is_new(3, 10.1)) == (True, False)
    assert not bundles.is_new(40, 10.0 + NEW_S)
