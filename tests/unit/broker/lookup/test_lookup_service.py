"""A lookup service answers, over real HTTP, about a map that the test has in its hands."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed, Corrupt, InvalidOption
from pulsar_on_kafka.base.http_server import HttpGuard, HttpServer, read_token
from pulsar_on_kafka.broker.lookup.file_directory import FileDirectory
from pulsar_on_kafka.broker.lookup.gateway_urls import check_gateways, chosen_urls
from pulsar_on_kafka.broker.lookup.http_directory import HttpDirectory, LookupAccess
from pulsar_on_kafka.broker.lookup.listeners import LookupClient, url_for
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace, decode_place
from pulsar_on_kafka.broker.lookup.tenant_map import TenantMap
from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.client.failover.tenant_connections import directory_of
from pulsar_on_kafka.clusters.lookup_service.answers import LookupAnswers
from pulsar_on_kafka.clusters.lookup_service.followed_map import FollowedMap
from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import (
    ClusterAddress,
    ClusterListener,
    ClusterRegistry,
    decode_clusters,
    encode_clusters,
)
from pulsar_on_kafka_mapping.state.clusters.tenant_records import TenantRecord, TenantState
from tests.certificates import Authority
from tests.waiting import until

URLS = {"west": "kafka://west:9092", "east": "kafka://east:9092"}
INSIDE = ClusterListener("kafka://inside:9092", ("10.0.0.0/8", "fd00::/8"))
RACK = ClusterListener("kafka://rack:9092", ("10.1.0.0/16",))
HOME = ClusterListener("kafka://loop:9092", ("127.0.0.0/8",))
GATEWAYS = ("pulsar://g1:6650", "http://g1:8080", "pulsar://g2:6650", "pulsar+ssl://g1:6651")
BY_NAME = ClusterListener("kafka://vpn:9092")
ADDRESSES = {
    "west": ClusterAddress(URLS["west"], listeners={"inside": INSIDE, "rack": RACK, "vpn": BY_NAME}),
    "east": ClusterAddress(URLS["east"], gateways=GATEWAYS),
    "home": ClusterAddress("kafka://home:9092", listeners={"loop": HOME, "vpn": BY_NAME}),
}


class Clusters:
    """Metadata of one topic, and what was asked."""

    def partitions(self, place: TenantPlace, topic: str) -> int:
        if topic != "persistent://acme/ns/orders":
            raise pulsar.TopicNotFound(f"topic {topic} does not exist")
        return 4

    def schema(self, place: TenantPlace, topic: str, version: int | None) -> StoredSchema:
        info = SchemaInfo(SchemaType.STRING, b"", "s", {"a": "b"})
        return StoredSchema(SchemaVersion(version or 7), 0, info, "", "", 12)

    def state(self, place: TenantPlace, topic: str) -> dict[str, Any]:
        if topic != "persistent://acme/ns/orders":
            raise pulsar.TopicNotFound(f"topic {topic} does not exist")
        if place.cluster == "east":
            raise pulsar.ConnectError("nobody answers")
        return {"partitions": [], "subscriptions": {}, "url": place.service_url}


class Service:
    def __init__(self) -> None:
        self.records = {"acme": TenantRecord("acme", "west", TenantState.ACTIVE, 1)}
        self.failure: Exception | None = None
        self.map = FollowedMap(self._read, lambda deadline: ADDRESSES, SystemClock())
        self.server = HttpServer("127.0.0.1", 0, LookupAnswers(self.map, Clusters()))
        self.directory = HttpDirectory(["127.0.0.1:1", f"127.0.0.1:{self.server.port}"])
        until(lambda: not self.map.failure(), "the map to be read")

    def _read(self, deadline: Deadline) -> dict[str, TenantRecord]:
        if self.failure is not None:
            raise self.failure
        return dict(self.records)

    def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        connection.request(method, path)
        response = connection.getresponse()
        found = response.status, json.loads(response.read())
        connection.close()
        return found

    def close(self) -> None:
        self.directory.close()
        self.server.close()
        self.map.close()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def test_a_change_is_told_to_whoever_waits_for_it(service: Service) -> None:
    known = service.directory.place("acme", Deadline.after(20))
    assert (known.cluster, known.service_url, known.switching) == ("west", URLS["west"], False)
    assert service.directory.changed(known, 0).version == known.version
    told: list[TenantPlace] = []
    waits = threading.Thread(target=lambda: told.append(service.directory.changed(known, 30)), daemon=True)
    waits.start()
    service.records = {"acme": TenantRecord("acme", "west", TenantState.SWITCHING, 2, "east")}
    waits.join(20)
    assert [(place.cluster, place.switching) for place in told] == [("west", True)]
    reached = told[0].reached
    assert reached is not None
    assert (reached.cluster, reached.service_url, reached.switching) == ("east", URLS["east"], False)
    service.records = {"acme": TenantRecord("acme", "west", TenantState.SWITCHING, 3, "south")}
    unknown = service.directory.changed(told[0], 30)
    assert (unknown.target, unknown.reached) == ("south", None), "a cluster without an address"


def test_whoever_follows_the_map_hears_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_on_kafka.clusters.lookup_service.followed_map.LOOK_S", 60.0)
    service = Service()
    known = service.directory.place("acme", Deadline.after(20))
    service.records = {"acme": TenantRecord("acme", "east", TenantState.ACTIVE, 2)}
    service.map.look()
    assert service.directory.changed(known, 20).cluster == "east"
    service.close()


def test_what_cannot_be_told(service: Service) -> None:
    with pytest.raises(LookupFailed, match=r"127.0.0.1:1: .*tenant nobody is on no cluster"):
        service.directory.place("nobody", Deadline.after(20))
    service.records["lost"] = TenantRecord("lost", "south", TenantState.ACTIVE, 1)
    until(lambda: "south" in service.get("/lookup/v1/tenants/lost")[1]["reason"], "the south to be named as failed")
    assert service.get("/lookup/v1/tenants/acme?unless=x&wait_s=soon")[0] == 400
    assert service.get("/lookup/v1/tenants/acme", "PUT")[0] == 405
    assert service.get("/elsewhere")[0] == 404
    service.directory.close()
    with pytest.raises(LookupFailed, match="the client is closed"):
        service.directory.place("acme", Deadline.after(20))


def test_metadata_is_asked_of_the_tenants_cluster(service: Service) -> None:
    assert service.get("/lookup/v2/topic/persistent/acme/ns/orders")[1]["brokerUrl"] == URLS["west"]
    assert service.get("/admin/v2/persistent/acme/ns/orders/partitions") == (200, {"partitions": 4})
    assert service.get("/admin/v2/persistent/acme/ns/none/partitions")[0] == 404
    status, schema = service.get("/admin/v2/schemas/acme/ns/orders/schema/3")
    assert (status, schema["version"], schema["type"], schema["properties"]) == (200, 3, "STRING", {"a": "b"})
    assert service.get("/admin/v2/schemas/acme/ns/orders/schema")[1]["version"] == 7
    assert service.get("/admin/v2/schemas/acme/ns/orders/schema/x")[0] == 400
    assert service.get("/admin/v2/persistent/acme/partitions")[0] == 400


def test_a_map_that_cannot_be_read_any_more_is_told_to_nobody(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_on_kafka.clusters.lookup_service.followed_map.STALE_S", 0.5)
    service.failure = AppendFailed("no broker")
    until(lambda: service.get("/health/ready")[0] == 503, "the service not to be ready")
    with pytest.raises(LookupFailed, match="cannot be read now: no broker"):
        service.directory.place("acme", Deadline.after(20))
    assert service.get("/health/live")[0] == 200
    service.failure = None
    until(lambda: service.get("/health/ready")[0] == 200, "the service to be ready")


def test_a_file_tells_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tenants.json"
    directory = FileDirectory(str(path))
    with pytest.raises(LookupFailed, match="cannot be read"):
        directory.place("acme", Deadline.after(1))

    def write(tenants: object, clusters: object = URLS) -> None:
        (tmp_path / "new").write_text(json.dumps({"clusters": clusters, "tenants": tenants}))
        (tmp_path / "new").replace(path)

    write({"acme": "west", "*": "east"})
    known = directory.place("acme", Deadline.after(1))
    assert (known.cluster, known.service_url) == ("west", URLS["west"])
    assert directory.place("other", Deadline.after(1)).cluster == "east"
    write({"acme": {"cluster": "west", "state": "SWITCHING"}})
    there = directory.changed(known, 20)
    assert there.switching
    assert there.reached is None
    write({"acme": {"cluster": "west", "state": "SWITCHING", "target": "east"}})
    reached = directory.place("acme", Deadline.after(1)).reached
    assert reached is not None
    assert (reached.cluster, reached.service_url) == ("east", URLS["east"])
    wrong: list[object] = [{}, {"acme": "south"}, {"acme": 7}, {"acme": {"cluster": "west", "state": "GONE"}}, []]
    wrong.append({"acme": {"cluster": "west", "state": "SWITCHING", "target": "south"}})
    for tenants in wrong:
        write(tenants)
        with pytest.raises(LookupFailed, match=r"tenants\.json"):
            directory.place("acme", Deadline.after(1))
    directory.close()
    write({"acme": "west"})
    with pytest.raises(LookupFailed, match="closed"):
        directory.changed(known, 20)


def test_services_of_former_versions_are_understood() -> None:
    said = {"tenant": "t", "cluster": "west", "service_url": "kafka://w", "state": "SWITCHING", "version": "1"}
    place = decode_place(said)
    assert (place.switching, place.reached) == (True, None)
    assert decode_place(place.as_json()) == place


@pytest.mark.parametrize("said", [{}, {"tenant": 7}, {**decode_place.__annotations__}])
def test_an_answer_that_says_no_place_is_corrupt(said: dict[str, Any]) -> None:
    with pytest.raises(Corrupt):
        decode_place(said)


def test_service_urls() -> None:
    assert directory_of("kafka://h:9092") is None
    assert isinstance(directory_of("pok+lookup://h:1,[::1]:2"), HttpDirectory)
    assert isinstance(directory_of("pok+map:///etc/tenants.json"), FileDirectory)
    for wrong in ("pok+lookup://", "pok+lookup://h", "pok+lookup://h:1,", "pok+map://"):
        with pytest.raises(ValueError, match="the service URL"):
            pulsar.Client(wrong)


@pytest.mark.parametrize(
    ("asker", "url"),
    [
        (LookupClient(), "west"),
        (LookupClient("192.168.0.1"), "west"),
        (LookupClient("10.2.0.1"), "inside"),
        (LookupClient("10.1.0.1"), "rack"),
        (LookupClient("::ffff:10.1.0.1"), "rack"),
        (LookupClient("fd00::1%eth0"), "inside"),
        (LookupClient("unix"), "west"),
        (LookupClient("10.1.0.1", "vpn"), "vpn"),
        (LookupClient("192.168.0.1", "inside"), "inside"),
    ],
)
def test_who_asks_is_told_the_address_of_its_network(asker: LookupClient, url: str) -> None:
    assert url_for("west", ADDRESSES["west"], asker) == f"kafka://{url}:9092"


def test_a_service_tells_each_its_address(service: Service) -> None:
    service.records["acme"] = TenantRecord("acme", "home", TenantState.SWITCHING, 2, "west")
    service.map.look()
    soon = Deadline.after(20)
    until(lambda: service.directory.place("acme", soon).cluster == "home", "the tenant to be at home")
    assert service.directory.place("acme", soon).service_url == "kafka://loop:9092", "this network's"
    address = f"127.0.0.1:{service.server.port}"
    named = HttpDirectory([address], listener="vpn")
    known = named.place("acme", soon)
    assert (known.service_url, known.target_url) == ("kafka://vpn:9092", "kafka://vpn:9092")
    assert named.changed(known, 0.0) == known
    with pytest.raises(LookupFailed, match="home has no listener 'none', known are: loop, vpn"):
        HttpDirectory([address], listener="none").place("acme", soon)
    service.records["acme"] = TenantRecord("acme", "home", TenantState.ACTIVE, 3)
    service.map.look()
    until(lambda: not service.directory.place("acme", soon).switching, "the switch to be over")
    client = pulsar.Client(f"pok+lookup://{address}", listener_name="vpn", connection_timeout_ms=100)
    with pytest.raises(pulsar.ConnectError):
        client.create_producer("persistent://acme/ns/orders")
    client.close()
    with pytest.raises(pulsar.NotSupported, match="listener_name"):
        pulsar.Client("kafka://a:1", listener_name="vpn")


def test_the_state_of_a_topic_is_that_on_each_of_its_clusters(service: Service) -> None:
    soon = Deadline.after(20)
    topic = "persistent://acme/ns/orders"
    west = {"partitions": [], "subscriptions": {}, "url": URLS["west"]}
    found = service.directory.topic_state(topic, soon)
    assert found == {
        "topic": topic, "tenant": "acme", "state": "ACTIVE", "cluster": "west", "target": "",
        "clusters": {"west": west},
    }  # fmt: skip
    service.records["acme"] = TenantRecord("acme", "west", TenantState.SWITCHING, 2, "east")
    service.map.look()
    until(lambda: service.directory.place("acme", soon).switching, "the switch to be seen")
    found = service.directory.topic_state(topic, soon)
    assert (found["state"], found["target"]) == ("SWITCHING", "east")
    assert found["clusters"] == {"west": west, "east": {"failure": "nobody answers"}}
    with pytest.raises(LookupFailed, match="does not exist"):
        service.directory.topic_state("persistent://acme/ns/none", soon)


def test_a_registry_that_former_versions_wrote_is_read() -> None:
    former = b'{"v":1,"local":"west","clusters":{"east":{"service_url":"kafka://east:9092","kafka_config":{"a":"b"}}}}'
    east = ClusterAddress("kafka://east:9092", {"a": "b"})
    assert decode_clusters(former) == ClusterRegistry("west", {"east": east})
    registry = ClusterRegistry("west", {"east": ADDRESSES["west"], "west": east})
    assert decode_clusters(encode_clusters(registry)) == registry


def test_a_service_with_a_certificate_and_a_token_answers_those_who_have_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity = authority.issue("lookup", address="127.0.0.1")
    followed = FollowedMap(
        lambda deadline: {"acme": TenantRecord("acme", "west", TenantState.ACTIVE, 1)},
        lambda deadline: ADDRESSES,
        SystemClock(),
    )
    guard = HttpGuard(str(identity.certificate), str(identity.key), "secret")
    server = HttpServer("127.0.0.1", 0, LookupAnswers(followed, Clusters()), guard)
    address, soon = f"127.0.0.1:{server.port}", Deadline.after(20)
    try:
        until(lambda: not followed.failure(), "the directory to be read")
        knows = LookupAccess(tls=True, token="secret", authorities=str(authority.file))
        assert HttpDirectory([address], knows).place("acme", soon).cluster == "west"
        with pytest.raises(LookupFailed, match="requires its token"):
            HttpDirectory([address], replace(knows, token="guess")).place("acme", soon)
        with pytest.raises(LookupFailed, match="certificate verify failed"):
            HttpDirectory([address], replace(knows, authorities="")).place("acme", soon)
        with pytest.raises(LookupFailed):
            HttpDirectory([address]).place("acme", soon)
    finally:
        server.close()
        followed.close()


def test_what_guards_a_service_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="is no PEM file"):
        HttpGuard(str(tmp_path / "none.pem")).context()
    with pytest.raises(InvalidOption, match="cannot be read"):
        read_token(str(tmp_path / "none"))
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(InvalidOption, match="is empty"):
        read_token(str(empty))


def test_gateways_get_the_whole_map(service: Service) -> None:
    found = service.directory.tenant_map()
    place = found.place("acme")
    assert (place.cluster, place.service_url, place.switching) == ("west", URLS["west"], False)
    assert (found.gateways("east"), found.gateways("west")) == (GATEWAYS, ())
    assert service.directory.tenant_map(found.version, 0.01).version == found.version
    told: list[TenantMap] = []
    waits = threading.Thread(target=lambda: told.append(service.directory.tenant_map(found.version, 30)), daemon=True)
    waits.start()
    service.records = {"acme": TenantRecord("acme", "west", TenantState.SWITCHING, 2, "east")}
    waits.join(20)
    place = told[0].place("acme")
    assert (place.switching, place.target, place.target_url) == (True, "east", URLS["east"])
    assert [each.generation("acme") for each in (found, *told)] == [0, 1]
    assert told[0].others("west") == {"east": URLS["east"], "home": told[0].service_url("home")}
    with pytest.raises(LookupFailed, match="has no cluster for tenant nobody"):
        found.place("nobody")
    with pytest.raises(LookupFailed, match="has no cluster 'south', it has: east, home, west"):
        found.service_url("south")


def test_official_clients_get_the_gateway_of_their_tenants_cluster(service: Service) -> None:
    path = "/lookup/v2/topic/persistent/acme/ns/orders"
    assert service.get(path) == (200, {"brokerUrl": URLS["west"], "cluster": "west"}), "it has no gateway"
    service.records = {"acme": TenantRecord("acme", "east", TenantState.ACTIVE, 2)}
    until(lambda: service.get(path)[1]["cluster"] == "east", "the tenant to be on the east")
    found = [service.get(path)[1] for _ in range(2)]
    assert {each["brokerUrl"] for each in found} == {"pulsar://g1:6650", "pulsar://g2:6650"}
    assert {(each["brokerUrlTls"], each["httpUrl"], each["httpUrlTls"]) for each in found} == {
        ("pulsar+ssl://g1:6651", "http://g1:8080", None)
    }
    service.records = {"acme": TenantRecord("acme", "east", TenantState.SWITCHING, 3, "west")}
    until(lambda: service.get(path)[0] == 503, "the tenant to be between two clusters")


def test_a_file_has_gateways_too(tmp_path: Path) -> None:
    path = tmp_path / "tenants.json"

    def write(gateways: object, tenants: dict[str, str]) -> None:
        clusters = {"west": URLS["west"], "east": {"url": URLS["east"], "gateways": gateways}}
        path.write_text(json.dumps({"clusters": clusters, "tenants": tenants}))

    write(["pulsar://g:6650"], {"*": "east"})
    directory = FileDirectory(str(path))
    found = directory.tenant_map()
    assert (found.place("acme").service_url, found.gateways("east")) == (URLS["east"], ("pulsar://g:6650",))
    write(["pulsar://g:6650"], {"*": "west"})
    assert directory.tenant_map(found.version, 20).place("acme").cluster == "west"
    for wrong, reason in (("pulsar://g:6650", "expected a list"), (["kafka://g:9092"], "got 'kafka://g:9092'")):
        write(wrong, {"*": "west"})
        with pytest.raises(LookupFailed, match=reason):
            directory.tenant_map().gateways("east")
    directory.close()


@pytest.mark.parametrize(
    "url", ["g:6650", "pulsar://g", "pulsar://:6650", "pulsar://g:1/x", "kafka://g:1", "pulsar://g:x"]
)
def test_what_is_no_url_of_a_gateway(url: str) -> None:
    with pytest.raises(InvalidOption, match="a gateway is named by pulsar://host:port"):
        check_gateways([url])


def test_clients_spread_over_gateways() -> None:
    assert [chosen_urls(GATEWAYS, turn).plain[-7:-5] for turn in range(3)] == ["g1", "g2", "g1"]
    assert not chosen_urls(("http://g1:8080",)).serves
