"""One stage per test: a fresh topic on the shared broker, or on one of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pulsar_on_kafka.embedded import EmbeddedBroker
from tests.chaos.cleaner import hasten
from tests.chaos.gateways.java_load import with_java
from tests.chaos.stage import Stage
from tests.late_proxy import LateProxy, late_broker
from tests.steps import Missing, Unique

MakeStage = Callable[..., Stage]


@pytest.fixture
def stage(service_url: str, tmp_path: Path, unique: Unique) -> Iterator[MakeStage]:
    """`stage(partitions)`: a stage with a new topic on the shared broker."""
    with ExitStack() as stack:

        def make(partitions: int, **creation: Any) -> Stage:
            return stack.enter_context(Stage(service_url, tmp_path, unique(), partitions, **creation))

        yield make


@pytest.fixture(scope="module")
def late(missing: Missing) -> Iterator[LateProxy]:
    """A broker of the module's own, behind a proxy that delivers requests late."""
    with late_broker(missing) as proxy:
        yield proxy


@pytest.fixture
def new_stage(service_url: str, tmp_path: Path, unique: Unique) -> MakeStage:
    """The same, to be entered and left by the test."""
    return lambda partitions, **creation: Stage(service_url, tmp_path, unique(), partitions, **creation)


@pytest.fixture
def shaky_stage(own_broker: EmbeddedBroker, tmp_path: Path, unique: Unique) -> Iterator[MakeStage]:
    """The same on `own_broker`, which the test may kill and restart."""
    with ExitStack() as stack:

        def make(partitions: int, **creation: Any) -> Stage:
            url = f"kafka://{own_broker.bootstrap}"
            return stack.enter_context(Stage(url, tmp_path, unique(), partitions, **creation))

        yield make


@pytest.fixture(params=["python", pytest.param("java", marks=pytest.mark.soak)])
def loads(request: pytest.FixtureRequest) -> Any:
    """What official clients in a language do by gateways (`gateways.fleet.Loads`)."""
    if request.param == "java":
        return with_java()
    return pytest.importorskip("tests.chaos.gateways.python_load").python_loads


@pytest.fixture
def quick_cleaner(monkeypatch: pytest.MonkeyPatch) -> None:
    """State topics that are created from now on are compacted within seconds, and counted with as such here."""
    hasten(monkeypatch.setitem)
