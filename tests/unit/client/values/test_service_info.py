"""`ServiceInfo` and the classes that hold several."""

from __future__ import annotations

import socket
from typing import Any

import pulsar as official
import pytest

import pulsar_on_kafka as ours
from pulsar_on_kafka.client.failover.service_info_provider import Failover
from tests.waiting import until

URL = "kafka://localhost:9092"
SOON_S = 20.0


def test_a_client_tells_how_it_reaches_its_cluster() -> None:
    info = ours.Client(URL).get_service_info()
    assert (info.service_url, info.use_tls, info.tls_trust_certs_file_path) == (URL, False, None)
    assert repr(ours.ServiceInfo.wrap(info)) == repr(info)


def test_repr_is_the_official_one() -> None:
    assert repr(ours.ServiceInfo("pulsar://a:1")) == repr(official.ServiceInfo("pulsar://a:1"))
    mine = ours.AutoClusterFailover(ours.ServiceInfo("pulsar://a:1"), [ours.ServiceInfo("pulsar+ssl://b:2")])
    theirs = official.AutoClusterFailover(
        official.ServiceInfo("pulsar://a:1"), [official.ServiceInfo("pulsar+ssl://b:2")]
    )
    assert repr(mine) == repr(theirs)


@pytest.mark.parametrize(
    "options",
    [
        {"primary": "x"},
        {"secondary": []},
        {"secondary": ["x"]},
        {"secondary": ()},
        {"check_interval_ms": 0},
        {"failover_threshold": 0},
        {"switch_back_threshold": -1},
        {"check_interval_ms": "1"},
    ],
)
def test_auto_cluster_failover_refuses_what_the_official_one_refuses(options: dict[str, Any]) -> None:
    for module in (official, ours):
        infos: dict[str, Any] = {
            "primary": module.ServiceInfo("pulsar://a:1"),
            "secondary": [module.ServiceInfo("pulsar://b:1")],
        }
        with pytest.raises(ValueError, match=next(iter(options))):
            module.AutoClusterFailover(**{**infos, **options})


class Provider:
    """Provider of either module: it notes the calls in order, and can tell of changes."""

    def __init__(self, initial: Any) -> None:
        self.initial = initial
        self.asked: list[str] = []
        self.tell: Any = None

    def initial_service_info(self) -> Any:
        self.asked.append("initial")
        return self.initial

    def initialize(self, on_service_info_update: Any) -> None:
        self.asked.append("initialize")
        self.tell = on_service_info_update

    def close(self) -> None:
        self.asked.append("close")


class OfficialProvider(Provider, official.ServiceInfoProvider):
    pass


class OurProvider(Provider, ours.ServiceInfoProvider):
    pass


BOTH: list[tuple[Any, Any, str]] = [(official, OfficialProvider, "pulsar"), (ours, OurProvider, "kafka")]


@pytest.mark.parametrize(("module", "provider_class", "scheme"), BOTH)
def test_a_provider_is_asked_told_of_and_closed(module: Any, provider_class: Any, scheme: str) -> None:
    provider = provider_class(module.ServiceInfo(f"{scheme}://127.0.0.1:1"))
    client = module.Client(provider)
    assert client.get_service_info().service_url == f"{scheme}://127.0.0.1:1"
    provider.tell(module.ServiceInfo(f"{scheme}+ssl://127.0.0.1:2", tls_trust_certs_file_path="/a"))
    info = client.get_service_info()
    assert info.service_url == f"{scheme}+ssl://127.0.0.1:2"
    assert (info.use_tls, info.tls_trust_certs_file_path) == (True, "/a")
    with pytest.raises((ValueError, RuntimeError)):  # the official one cannot tell it as ValueError from there
        provider.tell(5)
    assert client.get_service_info().service_url == info.service_url
    client.close()
    assert provider.asked == ["initial", "initialize", "close"]
    provider.tell(module.ServiceInfo(f"{scheme}://127.0.0.1:3"))
    assert client.get_service_info().service_url == info.service_url


@pytest.mark.parametrize(("module", "provider_class", "scheme"), BOTH)
def test_a_provider_that_gives_no_service_info_is_refused_and_closed(
    module: Any, provider_class: Any, scheme: str
) -> None:
    provider = provider_class(f"{scheme}://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"Expected a .*ServiceInfo"):
        module.Client(provider)
    assert provider.asked == ["initial", "close"]


@pytest.mark.parametrize(("module", "provider_class", "scheme"), BOTH)
def test_what_a_provider_says_itself_is_refused_beside_it(module: Any, provider_class: Any, scheme: str) -> None:
    info = module.ServiceInfo(f"{scheme}://127.0.0.1:1")
    for given in (provider_class(info), module.AutoClusterFailover(info, [info])):
        for options in ({"authentication": module.AuthenticationToken("t")}, {"tls_trust_certs_file_path": "/a"}):
            with pytest.raises(ValueError, match=f"Argument {next(iter(options))} is not supported"):
                module.Client(given, **options)
    with pytest.raises(ValueError, match="service_url"):
        module.Client(5)
    with pytest.raises(ValueError, match="authentication"):
        module.ServiceInfo(f"{scheme}://127.0.0.1:1", "token")


@pytest.mark.parametrize("url", ["pulsar://a:6650", "kafka://a", "pok+lookup://a:1"])
def test_a_place_that_cannot_be_used_is_refused_where_it_is_told(url: str) -> None:
    with pytest.raises(ValueError, match="kafka://"):
        ours.Client(OurProvider(ours.ServiceInfo(url)))
    with pytest.raises(ValueError, match="kafka://"):
        ours.Client(ours.AutoClusterFailover(ours.ServiceInfo(URL), [ours.ServiceInfo(url)]))
    provider = OurProvider(ours.ServiceInfo(URL))
    client = ours.Client(provider)
    with pytest.raises(ValueError, match="kafka://"):
        provider.tell(ours.ServiceInfo(url))
    assert client.get_service_info().service_url == URL
    client.close()


def test_an_update_from_inside_of_initialize_counts() -> None:
    class Early(OurProvider):
        def initialize(self, on_service_info_update: Any) -> None:
            on_service_info_update(ours.ServiceInfo("kafka://127.0.0.1:7"))

    client = ours.Client(Early(ours.ServiceInfo(URL)))
    assert client.get_service_info().service_url == "kafka://127.0.0.1:7"
    client.close()


def test_a_provider_that_fails_is_closed_and_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class NotNow(OurProvider):
        def initialize(self, on_service_info_update: Any) -> None:
            raise LookupError("not now")

    provider = NotNow(ours.ServiceInfo(URL))
    with pytest.raises(LookupError, match="not now"):
        ours.Client(provider)
    assert provider.asked == ["initial", "close"]

    class Stuck(OurProvider):
        def close(self) -> None:
            raise LookupError("stuck")

    ours.Client(Stuck(ours.ServiceInfo(URL))).close()
    assert "a ServiceInfoProvider failed to close" in caplog.messages


class Listening:
    """Brokers that accept connections, or not, by the client's scheme."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self._open: dict[str, socket.socket] = {}
        self._ports: dict[str, int] = {}

    def url(self, name: str) -> str:
        if name not in self._ports:
            self.up(name)
            self.down(name)
        return f"{self._scheme}://127.0.0.1:{self._ports[name]}"

    def up(self, name: str) -> None:
        self._open[name] = socket.create_server(("127.0.0.1", self._ports.get(name, 0)))
        self._ports[name] = self._open[name].getsockname()[1]

    def down(self, name: str) -> None:
        self._open.pop(name).close()


@pytest.mark.parametrize(("module", "scheme"), [(official, "pulsar"), (ours, "kafka")])
def test_auto_cluster_failover_uses_the_cluster_that_answers(module: Any, scheme: str) -> None:
    brokers = Listening(scheme)
    names = ("primary", "first", "second")
    primary, first, second = (module.ServiceInfo(brokers.url(name)) for name in names)
    brokers.up("primary")
    client = module.Client(
        module.AutoClusterFailover(primary, [first, second], check_interval_ms=20, switch_back_threshold=2)
    )

    def until_used(name: str) -> None:
        until(lambda: client.get_service_info().service_url == brokers.url(name), f"{name} to be used")

    until_used("primary")
    brokers.up("second")
    brokers.down("primary")
    until_used("second")  # the first that answers
    brokers.up("first")
    brokers.up("primary")
    until_used("primary")
    brokers.down("primary")
    until_used("first")
    client.close()
    for name in ("first", "second"):
        brokers.down(name)


def test_failover_counts_in_a_row() -> None:
    primary, first, second = (ours.ServiceInfo(f"kafka://{name}:1") for name in ("p", "f", "s"))
    up: set[ours.ServiceInfo] = set()
    config = ours.AutoClusterFailover(primary, [first, second], failover_threshold=3, switch_back_threshold=2)
    failover = Failover(config, up.__contains__)

    def after(*checks: set[ours.ServiceInfo]) -> ours.ServiceInfo:
        for alive in checks:
            up.clear()
            up.update(alive)
            failover.check()
        return failover.current

    assert after(set(), {second}, {primary}, {second}, {second}) is primary, "an answer begins the count anew"
    assert after({second}) is second
    assert after({second, primary}, {second}, {second, primary}) is second
    assert after({second, primary}) is primary
    assert after(set(), set(), set(), set()) is primary, "nobody else answers either"
    assert after({first, second}) is first
    assert after(set(), {primary}) is first
    assert after({primary}) is primary, "it answers twice, and the one in use has failed three times"
