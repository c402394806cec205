"""V5 clients watch the topics of a namespace, and the gateways of transaction coordinators."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.handlers.lookups import topics_hash
from pulsar_on_kafka.gateway.handlers.transactions import COORDINATORS
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka.gateway.watches import coordinator_watches
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique

pytestmark = pytest.mark.kafka


def test_a_watch_gets_the_topics_of_a_namespace_by_their_properties(
    wire: Wire, admin: AdminClient, unique: Unique
) -> None:
    namespace = f"public/{unique()}"
    admin.create_namespace(namespace)
    admin.create_topic(f"{namespace}/a", properties={"team": "x", "kind": "1"})
    admin.create_topic(f"{namespace}/other", properties={"team": "y"})
    admin.create_topic(f"non-persistent://{namespace}/n", properties={"team": "x"})
    wire.connect()
    filtered = {"namespace": namespace, "property_filters": [{"key": "team", "value": "x"}]}
    first = wire.ask(Type.WATCH_SCALABLE_TOPICS, watch_id=7, **filtered)
    assert (first.watch_id, list(first.snapshot.topics)) == (7, [f"topic://{namespace}/a"])
    admin.create_partitioned_topic(f"{namespace}/b", 3, properties={"team": "x"})
    kind, update = wire.hear()
    assert (kind, update.watch_id) == (Type.WATCH_SCALABLE_TOPICS_UPDATE, 7)
    assert (list(update.diff.added), list(update.diff.removed)) == ([f"topic://{namespace}/b"], [])
    admin.update_topic_properties(f"{namespace}/a", {"team": "y"})
    update = wire.hear()[1]
    assert (list(update.diff.added), list(update.diff.removed)) == ([], [f"topic://{namespace}/a"])
    known = topics_hash([f"topic://{namespace}/b"])
    wire.say(Type.WATCH_SCALABLE_TOPICS, watch_id=8, current_hash=known, **filtered)
    wire.say(Type.WATCH_SCALABLE_TOPICS_CLOSE, watch_id=7)
    wire.say(Type.WATCH_SCALABLE_TOPICS_CLOSE, watch_id=7)
    admin.delete_topic(f"{namespace}/b")
    update = wire.hear()[1]
    assert (update.watch_id, list(update.diff.removed)) == (8, [f"topic://{namespace}/b"]), "the same hash: no snapshot"


def test_a_missing_namespace_has_no_topics(wire: Wire, unique: Unique) -> None:
    wire.connect()
    found = wire.ask(Type.WATCH_SCALABLE_TOPICS, watch_id=1, namespace=f"public/{unique()}")
    assert found.HasField("snapshot")
    assert list(found.snapshot.topics) == []


def test_coordinators_are_at_the_gateway_that_lookups_find(admin: AdminClient, unique: Unique) -> None:
    fleet = unique()
    first = Gateway(admin.node, GatewaySettings(port=0, fleet=fleet))
    try:
        with Wire(first) as wire:
            wire.connect()
            alone = wire.ask(Type.WATCH_TC_ASSIGNMENTS, watch_id=3)
            count = alone.snapshot.parallelism
            found = [(each.tc_id, each.broker_service_url) for each in alone.snapshot.assignments]
            assert (alone.watch_id, found) == (3, [(number, first.address()) for number in range(count)])
            wire.say(Type.WATCH_TC_ASSIGNMENTS, watch_id=4)
            assert wire.hear()[1].watch_id == 4
            wire.say(Type.WATCH_TC_ASSIGNMENTS_CLOSE, watch_id=4)
            second = Gateway(admin.node, GatewaySettings(port=0, fleet=fleet))
            try:
                urls = {first.address()}
                while len(urls) < 2:
                    kind, update = wire.hear()
                    assert (kind, update.watch_id) == (Type.WATCH_TC_ASSIGNMENTS_UPDATE, 3)
                    urls = {each.broker_service_url for each in update.snapshot.assignments}
                deadline = Deadline.after(60)
                for each in update.snapshot.assignments:
                    name = f"{COORDINATORS}-partition-{each.tc_id}"
                    assert each.broker_service_url == first.serving(name, deadline)
            finally:
                second.close(Deadline.after(60))
            while urls != {first.address()}:
                urls = {each.broker_service_url for each in wire.hear()[1].snapshot.assignments}
    finally:
        first.close(Deadline.after(60))


def test_watches_of_coordinators_are_limited(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_watches, "MAX_WATCHES", 1)
    wire.connect()
    assert wire.ask(Type.WATCH_TC_ASSIGNMENTS, watch_id=1).HasField("snapshot")
    assert wire.ask(Type.WATCH_TC_ASSIGNMENTS, watch_id=2).error == ServerError.TOO_MANY_REQUESTS
    assert wire.ask(Type.WATCH_TC_ASSIGNMENTS, watch_id=1).HasField("snapshot"), "the same watch again"
