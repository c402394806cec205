"""A tenant's clients move from cluster to cluster together, with sessions and a map that the test has in its hands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace
from pulsar_on_kafka.client.connection.connection import ClientOptions
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.failover.tenant_connection import TenantHome
from pulsar_on_kafka.client.failover.tenant_connections import Homes
from pulsar_on_kafka_mapping.state.clusters.tenant_records import TenantState
from tests.waiting import until

SOON_S = 20.0


def at(cluster: str, version: int, target: str = "") -> TenantPlace:
    state = TenantState.SWITCHING if target else TenantState.ACTIVE
    return TenantPlace(
        "acme", cluster, f"kafka://{cluster}", state, str(version), target, f"kafka://{target}" if target else ""
    )


class Map:
    """A `Directory`."""

    def __init__(self) -> None:
        self._now = at("west", 1)
        self._changed = threading.Condition()
        self._closed = False

    def say(self, place: TenantPlace) -> None:
        with self._changed:
            self._now = place
            self._changed.notify_all()

    def place(self, tenant: str, deadline: Deadline) -> TenantPlace:
        return self._now

    def changed(self, known: TenantPlace, wait_s: float) -> TenantPlace:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._now.version != known.version, wait_s)
            if self._closed:
                raise LookupFailed("closed")
            return self._now

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Opened:
    """A `Session`."""

    def __init__(self, place: TenantPlace, connect: Callable[[], object]) -> None:
        self.cluster = place.cluster
        self.closed = False
        self.connected = threading.Event()
        self._connect = connect

    def node(self) -> None:
        self._connect()
        self.connected.set()

    def close(self) -> None:
        self.closed = True


class Goes:
    """A `Traveller`; leaves and arrives only together with as many others as `meet` says."""

    def __init__(self, meet: threading.Barrier) -> None:
        self._meet = meet
        self.did: list[str] = []
        self.at: Any = None
        self.looked = threading.Event()

    def pause(self) -> None:
        self.did.append("pause")

    def depart(self) -> None:
        self._meet.wait()
        self.did.append("depart")
        self.at = None

    def look_ahead(self, session: Session) -> None:
        self.looked.set()

    def arrive(self, session: Session) -> None:
        if "depart" in self.did:
            self._meet.wait()
        self.did.append("arrive")
        self.at = session

    def expire(self) -> None:
        return

    def abandon(self) -> None:
        return


class World:
    def __init__(self) -> None:
        self.map = Map()
        self.opened: list[Opened] = []
        self.connect: Callable[[], object] = lambda: None
        self.home = TenantHome("acme", self.map, self._open, SOON_S)
        meet = threading.Barrier(2, timeout=SOON_S)
        self.both = [Goes(meet), Goes(meet)]
        for each in self.both:
            self.home.join(each)

    def _open(self, place: TenantPlace) -> Session:
        made = Opened(place, lambda: self.connect())
        self.opened.append(made)
        return cast("Session", made)

    def are_at(self, cluster: str) -> bool:
        return all(each.at is not None and each.at.cluster == cluster for each in self.both)

    def close(self) -> None:
        self.home.end()
        self.map.close()
        self.home.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_all_leave_and_arrive_together_where_somebody_looked_before(world: World) -> None:
    world.map.say(at("west", 2, "east"))
    until(lambda: len(world.opened) == 2, "the other cluster to be looked at")
    ahead = world.opened[1]
    assert ahead.cluster == "east"
    assert ahead.connected.wait(SOON_S), "while the tenant is between the clusters"
    assert all(each.looked.wait(SOON_S) for each in world.both)
    until(lambda: world.opened[0].closed, "the first one to be closed")
    assert not world.are_at("east")
    world.map.say(at("east", 3))
    until(lambda: world.are_at("east"), "both to be in the east")
    assert [each.at for each in world.both] == [ahead] * 2
    assert world.both[0].did == ["arrive", "pause", "depart", "arrive"]
    assert len(world.opened) == 2
    assert not ahead.closed


def test_a_switch_that_is_abandoned_leaves_nothing_open_elsewhere(world: World) -> None:
    hangs, gave_up = threading.Event(), threading.Event()

    def connect() -> None:
        if threading.current_thread().name.startswith("pok-ahead"):
            hangs.wait(SOON_S)
            gave_up.set()
            raise ConnectFailed("nobody is there")

    world.connect = connect
    world.map.say(at("west", 2, "east"))
    until(lambda: len(world.opened) == 2, "the other cluster to be looked at")
    world.map.say(at("west", 3))
    until(lambda: world.are_at("west"), "both to be in the west, though the other cluster does not answer yet")
    assert not gave_up.is_set()
    hangs.set()
    until(lambda: world.opened[1].closed, "the second one to be closed")
    assert [(each.cluster, each.closed) for each in world.opened] == [("west", True), ("east", True), ("west", False)]


def test_a_cluster_that_is_away_is_tried_again(world: World) -> None:
    tries: list[None] = []

    def connect() -> None:
        tries.append(None)
        if len(tries) < 4:
            raise ConnectFailed("nobody is there")

    world.connect = connect
    world.map.say(at("east", 2))
    until(lambda: world.are_at("east"), "both to be in the east")
    assert [each.closed for each in world.opened] == [True] * 4 + [False]


def test_a_client_that_closes_does_not_miss_who_tells_of_changes(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()

    class Asked(Map):
        def changed(self, known: TenantPlace, wait_s: float) -> TenantPlace:
            asked.set()
            return super().changed(known, wait_s)

        def close(self) -> None:
            super().close()
            next(each for each in threading.enumerate() if each.name == "pok-tenant-acme").join(SOON_S)

    options = cast("ClientOptions", SimpleNamespace(operation_timeout_seconds=SOON_S, metrics_port=None))
    homes = Homes(Asked(), lambda place: cast("Session", Opened(place, lambda: None)), options)
    homes.session("persistent://acme/shop/orders")
    assert asked.wait(SOON_S)
    homes.close()
    assert caplog.messages == []


class Stumbles(Goes):
    """Raises what no traveller should, wherever it may, and then arrives."""

    def __init__(self, meet: threading.Barrier) -> None:
        super().__init__(meet)
        self.arrivals = 0

    def pause(self) -> None:
        raise ValueError("a header that cannot be read")

    def depart(self) -> None:
        raise KeyError("nobody expected this")

    def arrive(self, session: Session) -> None:
        self.arrivals += 1
        if cast("Any", session).cluster == "east" and self.arrivals < 4:
            raise ValueError("a header that cannot be read")
        self.at = session

    def expire(self) -> None:
        raise OverflowError("nor this")


def test_a_traveller_that_raises_anything_keeps_nobody_from_moving() -> None:
    directory = Map()
    home = TenantHome("acme", directory, lambda place: cast("Session", Opened(place, lambda: None)), SOON_S)
    stumbles, goes = Stumbles(threading.Barrier(1)), Goes(threading.Barrier(1))
    home.join(stumbles)
    home.join(goes)
    directory.say(at("east", 2))
    until(lambda: getattr(goes.at, "cluster", "") == getattr(stumbles.at, "cluster", "") == "east", "both in the east")
    directory.say(at("west", 3))
    until(lambda: goes.at is not None and goes.at.cluster == "west", "one in the west")
    home.end()
    directory.close()
    home.close()
