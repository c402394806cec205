"""One broker for the whole run, started when the first test needs it; brokers of their own for tests that kill them.

Tests on two clusters have theirs in `tests/clusters`.
"""

from __future__ import annotations

import gc
import re
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.embedded import Broker, BrokerKind, BrokerOptions, EmbeddedBroker, open_broker
from tests.brokers import available
from tests.seeds import SHORT, SHORTENED
from tests.steps import Missing, Process

# Machines are busy, and many drawings are dropped on purpose (of two schemas the second must be one that may follow the
# first): no example has a deadline (the whole test has pytest's), nor has making one. With CI set, hypothesis draws the
# same each time.
settings.register_profile(
    "project", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
settings.register_profile(
    SHORT, settings.get_profile("project"), max_examples=settings.get_profile("project").max_examples // SHORTENED
)
settings.load_profile("project")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background, and CI may be that
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start inherit what is ignored

_KILLS_S = 600
_TOGETHER = ("tests/spark/", "tests/clusters/")
"""Directories whose tests share what is dear to start and warm up: a JVM with Spark, two brokers."""
_CHAOS = Path(__file__).parent / "chaos"
_BROKER_FIXTURES = frozenset({"kafka_broker", "bootstrap", "service_url", "own_broker", "two_brokers"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka")
    group.addoption(
        "--broker",
        choices=["auto", "embedded", "docker", "external"],
        default="auto",
        help="where Kafka comes from; auto: the cluster of POK_BOOTSTRAP if that is set, else an embedded broker",
    )
    group.addoption(
        "--require",
        action="append",
        default=[],
        choices=["kafka", "pulsar", "spark"],
        help="fail instead of skip where this is missing (may be repeated)",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, but all of a directory of `_TOGETHER` goes to one process, which begins with it: otherwise
    xdist begins with the file of most tests, and a few long ones would be what everybody waits for in the end."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SomeTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            found = (directory for directory in _TOGETHER if nodeid.startswith(directory))
            return next(found, None) or super()._split_scope(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            for directory in _TOGETHER:
                if directory in self.workqueue:
                    self.workqueue.move_to_end(directory, last=False)
            super()._assign_work_unit(node)

    return SomeTogether(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses a broker is marked `kafka`, so that a bare `pytest` leaves it out; what ends processes, `kills`."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if _BROKER_FIXTURES.intersection(fixtures):
            item.add_marker("kafka")
        if "own_broker" in fixtures or _CHAOS in item.path.parents:
            item.add_marker("kills")
            if item.get_closest_marker("timeout") is None and item.get_closest_marker("soak") is None:
                item.add_marker(pytest.mark.timeout(_KILLS_S))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: Python's garbage collector need not look through them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def missing(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`missing("kafka", reason)` skips the test, or fails it under `--require kafka`."""
    required = cast("list[str]", request.config.getoption("--require"))

    def skip_or_fail(what: str, reason: str) -> None:
        if what in required:
            pytest.fail(f"--require {what}: {reason}", pytrace=False)
        pytest.skip(reason)

    return skip_or_fail


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest, missing: Missing) -> Iterator[Broker]:
    """The broker that the whole run shares. Do not stop it: ask for `own_broker`."""
    kind = cast("BrokerKind", request.config.getoption("--broker"))
    with available(missing, open_broker(kind, BrokerOptions())) as broker:
        yield broker


@pytest.fixture(
    params=[
        pytest.param(0, id="in-time"),
        pytest.param(8, id="8-h-ahead", marks=pytest.mark.long),
        pytest.param(-72, id="3-days-behind", marks=pytest.mark.long),
        pytest.param(-8, id="8-h-behind", marks=pytest.mark.soak),
        pytest.param(72, id="3-days-ahead", marks=pytest.mark.soak),
    ]
)
def machine_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's clock of this process is off, see `tests.clocks.WRONG_CLOCKS`."""
    off_ms, right = request.param * 3_600_000, SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: right(self) + off_ms)


@pytest.fixture
def bootstrap(kafka_broker: Broker) -> str:
    """`host:port` of the shared broker."""
    return kafka_broker.bootstrap


@pytest.fixture
def service_url(kafka_broker: Broker) -> str:
    """The shared broker as a Client's service URL."""
    return f"kafka://{kafka_broker.bootstrap}"


@pytest.fixture
def client(service_url: str) -> Iterator[pulsar.Client]:
    """A client of the shared broker, closed at the end of the test."""
    made = pulsar.Client(service_url)
    yield made
    made.close()


@pytest.fixture
def process(service_url: str) -> Iterator[Process]:
    """`process(**options)`: a client that shares nothing with the test's others, as that of another process does."""
    with ExitStack() as stack:

        def make(**options: Any) -> pulsar.Client:
            made = pulsar.Client(service_url, kafka_config={"client.rack": secrets.token_hex(4)}, **options)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def admin(service_url: str) -> Iterator[AdminClient]:
    """An administrator of the shared broker, closed at the end of the test. It is patient: state topics are made while
    the first owner begins to listen."""
    with AdminClient(service_url, operation_timeout_seconds=120) as made:
        yield made


@pytest.fixture
def admin_elsewhere(service_url: str) -> Iterator[AdminClient]:
    """The same in another process than the test's clients: it shares nothing with them."""
    options = {"client.rack": secrets.token_hex(4)}
    with AdminClient(service_url, operation_timeout_seconds=120, kafka_config=options) as made:
        yield made


@pytest.fixture
def own_broker(missing: Missing, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """An embedded broker of this test's own, free to be killed, paused and restarted, whatever `--broker` says.

    Its log lies beside what the test writes, and outlives the broker.
    """
    extra = {"log.cleaner.backoff.ms": "200"}  # chaos rounds have it compact within seconds
    options = BrokerOptions(heap_mb=512, log_file=tmp_path / "broker.log", extra=extra)
    with available(missing, EmbeddedBroker(options)) as broker:
        yield broker


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[..., str]:
    """`unique()` or `unique("orders")`: a name that no topic and no group has had, telling the test it is from."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", cast("Any", request.node).originalname or request.node.name).strip("-")[:60]

    def fresh(name: str = "topic") -> str:
        # Digits alone, behind a test called ..._partition, would name a partition.
        return f"{name}-{test}-t{secrets.token_hex(4)}"

    return fresh
