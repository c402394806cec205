"""The classes of FastStream's base, on a real broker and in memory."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from faststream import BaseMiddleware

from pulsar_on_kafka import InitialPosition
from pulsar_on_kafka.integrations.faststream import PulsarBroker, PulsarRouter, TestPulsarBroker
from pulsar_on_kafka.integrations.faststream.testing import MemoryProducer

pytestmark = pytest.mark.kafka
_PACKAGE = "faststream_broker_base"
_FASTSTREAM = Path(os.environ["POK_FASTSTREAM"]) / "tests"
_TOOLS = "tests.tools"


def base(module: str) -> Any:
    """A module of FastStream's base, whose package has another name here: `tests` is ours, and has no `tools`."""
    if _PACKAGE not in sys.modules:
        package = ModuleType(_PACKAGE)
        package.__path__ = [str(_FASTSTREAM / "brokers" / "base")]
        sys.modules[_PACKAGE] = package
        spec = importlib.util.spec_from_file_location(_TOOLS, _FASTSTREAM / "tools.py")
        assert spec is not None
        assert spec.loader is not None
        tools = sys.modules[_TOOLS] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tools)
    return importlib.import_module(f"{_PACKAGE}.{module}")


class WithSubscription:
    """The base names topics alone, at times; each subscriber then has the subscription `base`, from the beginning."""

    def subscriber(self, topic: str, subscription: str = "base", **options: Any) -> Any:
        return super().subscriber(  # type: ignore[misc]  # the class beside it
            topic, subscription, **{"initial_position": InitialPosition.Earliest, **options}
        )


class Broker(WithSubscription, PulsarBroker):  # type: ignore[misc]  # the subscription has a default here
    """A broker whose subscribers begin with the first message."""


class Router(WithSubscription, PulsarRouter):  # type: ignore[misc]  # as above
    """A router whose subscribers begin with the first message."""


class OnKafka:
    """What each class of the base requires of a broker's tests."""

    timeout = 60.0
    url = ""
    replies = ""

    @pytest.fixture(autouse=True)
    def _on_the_cluster(self, service_url: str, unique: Any) -> None:
        type(self).url = service_url
        type(self).replies = unique("replies")

    broker = Broker

    @pytest.fixture
    def settings(self, service_url: str) -> str:
        return service_url

    def get_broker_args(self, settings: str) -> dict[str, Any]:
        return {"url": settings}

    def get_broker(self, apply_types: bool = False, **options: Any) -> PulsarBroker:
        return Broker(self.url, reply_topic=self.replies, apply_types=apply_types, **options)

    def get_router(self, **options: Any) -> PulsarRouter:
        return Router(**options)


class InMemory(OnKafka):
    """The same, in memory."""

    def patch_broker(self, *brokers: PulsarBroker, **options: Any) -> Any:
        return TestPulsarBroker(*brokers, **options)

    @pytest.fixture
    def fake_producer_cls(self) -> type:
        return MemoryProducer


class DoublingConsumer(BaseMiddleware[Any, Any]):
    """Doubles each body that is received."""

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        msg.body *= 2
        return await call_next(msg)


class DoublingOnKafka(DoublingConsumer):
    """Doubles each body that is sent, too. The base counts two doublings of a request and two of its reply."""

    async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
        cmd.body *= 2
        return await call_next(cmd)


class DoublingInMemory(DoublingConsumer):
    """Doubles each received payload, too: a reply in memory passes no `publish_scope`, as in FastStream's brokers."""

    async def on_receive(self) -> None:
        assert self.msg is not None
        self.msg._payload *= 2


TESTS = (
    ("consume", "BrokerRealConsumeTestcase", (OnKafka,)),
    ("testclient", "BrokerTestclientTestcase", (InMemory,)),  # consuming and publishing in memory, too
    ("publish", "BrokerPublishTestcase", (OnKafka,)),
    ("parser", "CustomParserTestcase", (OnKafka, InMemory)),
    ("requests", "RequestsTestcase", (OnKafka, InMemory)),
    ("include_router", "IncludeSubscriberTestcase", (OnKafka,)),
    ("include_router", "IncludePublisherTestcase", (OnKafka,)),
    ("connection", "BrokerConnectionTestcase", (OnKafka,)),
)
"""Module and class of FastStream's tests, and where they run."""


def _tests_of(where: type, tests: type) -> type:
    """A class that pytest collects: FastStream's tests with what they require of this broker."""
    doubling = DoublingInMemory if where is InMemory else DoublingOnKafka
    return type(tests.__name__, (where, tests), {"get_middleware": lambda _self, **_options: doubling})


for _module, _name, _places in TESTS:
    for _where in _places:
        globals()[f"Test{_name}{_where.__name__}"] = _tests_of(_where, getattr(base(_module), _name))
