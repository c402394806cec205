"""One SparkSession for all tests of a process: small, without its web interface."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.spark
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.spark import SparkNotReady, read_pulsar
from tests.foreign_records import ForeignProducer
from tests.spark.histories import Stage, entry_keys
from tests.steps import Missing, Unique

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # A JVM of some minutes: what its second compiler and parallel collector would save, they cost here. Without the
    # second compiler the JVM has room for 48 MB of code: Spark's and what it generates are more, so that the JVM
    # throws code away and compiles it anew, for a quarter of the time that all of these tests take.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xms1g"
    " -Xmn400m -Xshare:auto",
}
MASTER = "local[2,2]"
"""Two threads; a failed task is run once more, as on every cluster."""
_PY4J = ("ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
"""py4j leaves the closing of its sockets to the garbage collector."""
_HERE = Path(__file__).parent
_TIMEOUT_S = 900
"""The first test of a process waits for Spark to start, and on a new machine for its jars. Beside a load of 14, on two
slow cores, its first two queries took more than five minutes; and where py4j is interrupted, all tests behind fail."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE not in item.path.parents:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
            for ignored in _PY4J:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(scope="session")
def spark(missing: Missing) -> Iterator[SparkSession]:
    try:
        made = pulsar_on_kafka.spark.session("tests", master=MASTER, config=SETTINGS)
    except SparkNotReady as reason:
        missing("spark", str(reason))
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture
def transactional(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url, enable_transaction=True)
    yield made
    made.close()


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    """Of two partitions, with a subscription from its beginning."""
    name = unique()
    admin.create_partitioned_topic(name, 2)
    admin.create_subscription(name, "s", from_earliest=True)
    return name


@pytest.fixture
def read(spark: SparkSession, service_url: str, topic: str) -> Callable[..., DataFrame]:
    def reading(**options: object) -> DataFrame:
        return read_pulsar(spark, service_url=service_url, topic=topic, **options)

    return reading


@pytest.fixture(scope="module", autouse=True)
def sockets_end_here() -> Iterator[None]:
    """In the file where they are expected, not in a later one."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def entry_pair(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    return entry_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def stage(
    transactional: pulsar.Client,
    admin: AdminClient,
    service_url: str,
    bootstrap: str,
    entry_pair: pulsar.CryptoKeyReader,
) -> Iterator[Stage]:
    foreign = ForeignProducer(bootstrap)
    yield Stage(transactional, admin, service_url, bootstrap, entry_pair, foreign)
    foreign.close()
