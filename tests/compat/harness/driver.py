"""`ScenarioRun`: what a scenario is given. The same object for both sides; only its module and its addresses differ."""

from __future__ import annotations

import importlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.client.values.authentication import AuthenticationToken
from tests.compat.harness.admin import Admin, AdminError, LayerAdmin, PulsarRest
from tests.compat.harness.history import Event, Normaliser, Side
from tests.compat.harness.java import JavaAddress, JavaSdk
from tests.compat.harness.secured import ADMIN, EVERYTHING, Logins

T = TypeVar("T")

PATIENCE_MS: Final = 20_000
"""For what must come."""

SILENCE_MS: Final = 800
"""For what must not come, unless a target says otherwise."""

_CLOCK: Final = SystemClock()
_OPERATION_TIMEOUT_S: Final = 20
_CLOCKS_DIFFER_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Target:
    """One side's addresses. `options` go to every client (kafka_config with its secrets: hence no repr)."""

    side: Side
    url: str
    admin_url: str = ""
    namespace: str = "public/default"
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    clean: bool = False
    """Delete the scenario's topics afterwards."""
    logins: Logins | None = None
    """Of a secured cluster, or of a secured gateway to a cluster without logins."""
    gateway: str = ""
    """On Kafka's side, the address of a gateway: official clients are on it, in the place of our SDK."""
    silence_ms: int = SILENCE_MS
    """Silence after which no more messages are expected."""

    @property
    def tenant(self) -> str:
        return self.namespace.partition("/")[0]

    @property
    def has_official_clients(self) -> bool:
        return self.side is Side.PULSAR or bool(self.gateway)

    @property
    def module(self) -> str:
        """What a program imports as `pulsar`."""
        return Side.PULSAR.value if self.gateway else self.side.value


def administrator(target: Target) -> Admin:
    """A side's administrator; a `LayerAdmin` is to be closed. Raises PulsarException: nobody answers (Kafka)."""
    logins = target.logins
    if target.side is Side.PULSAR:
        return PulsarRest(target.admin_url, logins)
    if logins is None or target.gateway:
        given = target.options
        return LayerAdmin(
            AdminClient(target.url, kafka_config=given.get("kafka_config"), instance=given.get("instance"))
        )
    token = AuthenticationToken(logins.tokens[ADMIN])
    return LayerAdmin(AdminClient(target.url, authentication=token, tls_trust_certs_file_path=logins.authority))


class Subscribed(NamedTuple):
    """A topic, a consumer of it, and the ids of what was sent to it afterwards."""

    topic: str
    consumer: Any
    ids: list[Any]


def numbers(count: int, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


class ScenarioRun:
    """One scenario on one side. Its calls are thread-safe; what it opens is closed at the end."""

    def __init__(
        self, target: Target, unique: str, heard: Callable[[Event], None], java: JavaAddress | None = None
    ) -> None:
        """With `java` Pulsar is driven by the Java client."""
        self._target = target
        self._unique = unique
        self._heard = heard
        self._normaliser = Normaliser()
        self._lock = threading.Lock()
        self._clients: list[Any] = []
        self._default_client: Any = None
        self._topics: list[str] = []
        self._admin: Admin | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._started_ms = _CLOCK.now_ms()
        self.sdk: Any = importlib.import_module(target.module) if java is None else JavaSdk(java)
        """The module that a program imports as `pulsar`; with the Java client, what stands for it."""
        client = "java" if java is not None else "python" if target.has_official_clients else target.module
        self.driven_by = [client]
        """What moves this side, as `SideResult` has it."""

    def __enter__(self) -> ScenarioRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def asyncio(self) -> Any:
        """The module's `asyncio`."""
        return self.submodule("asyncio")

    def submodule(self, name: str) -> Any:
        return importlib.import_module(f"{self._target.module}.{name}")

    @property
    def service_url(self) -> str:
        return self._target.gateway or self._target.url

    @property
    def admin(self) -> Admin:
        if self._target.side is Side.PULSAR and "rest" not in self.driven_by:
            self.driven_by.append("rest")
        return self._administration()

    def _administration(self) -> Admin:
        if self._admin is None:
            self._admin = administrator(self._target)
        return self._admin

    @property
    def directory(self) -> Path:
        """An empty directory for the scenario's files."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="pok-compat-")
        return Path(self._directory.name)

    def topic(self, label: str = "topic", partitions: int = 0, *, persistent: bool = True, namespace: str = "") -> str:
        """The full name of a topic that nobody else uses; in the history it is `<label>`.

        It is created with `partitions` partitions; with 0 it is left to be created by its first user.
        """
        base = f"{namespace or self._target.namespace}/{self._unique}-{label}"
        name = f"{'persistent' if persistent else 'non-persistent'}://{base}"
        with self._lock:
            self._normaliser.call(f"{base}", label)
            self._topics.append(name)
        if partitions:
            self.admin.create_partitioned_topic(name, partitions)
        return name

    def namespace(self, label: str = "namespace", *, create: bool = True) -> str:
        """The name of a namespace that nobody else uses, in the tenant of the run's own."""
        name = f"{self._target.tenant}/{self._unique}-{label}"
        with self._lock:
            self._normaliser.call(name, label)
        if create:
            self.admin.create_namespace(name)
        return name

    def name(self, label: str) -> str:
        """A name that nobody else uses, such as a topic's last part; in the history it is `<label>`."""
        with self._lock:
            self._normaliser.call(f"{self._unique}-{label}", label)
        return f"{self._unique}-{label}"

    def client(self, **options: Any) -> Any:
        """A new client of the side's cluster."""
        ours = {} if self._target.gateway else self._target.options
        return self.client_at(self.service_url, **{**ours, **options})

    def client_as(self, role: str | None, **options: Any) -> Any:
        """A new client of a secured cluster, with the token of a role (`compat.secured`); None for no login."""
        return self.client(**{**self._login(role), **options})

    def _login(self, role: str | None) -> dict[str, Any]:
        logins = self.logins
        trusting: dict[str, Any] = {"tls_trust_certs_file_path": logins.authority}
        if role is not None:
            trusting["authentication"] = self.sdk.AuthenticationToken(logins.tokens[role])
        return trusting

    @property
    def logins(self) -> Logins:
        """Logins of a secured scenario's cluster."""
        if self._target.logins is None:
            raise ValueError("only secured scenarios have logins: @scenario(..., secured=True)")
        return self._target.logins

    def client_at(self, url: Any, **options: Any) -> Any:
        quiet = self.sdk.ConsoleLogger(self.sdk.LoggerLevel.Warn)
        given = {"operation_timeout_seconds": _OPERATION_TIMEOUT_S, "logger": quiet, **options}
        made = self.sdk.Client(url, **given)
        with self._lock:
            self._clients.append(made)
        return made

    @property
    def shared_client(self) -> Any:
        """The client of `producer`, `consumer` and `reader`, made at its first use."""
        if self._default_client is None:
            self._default_client = self.client() if self._target.logins is None else self.client_as(EVERYTHING)
        return self._default_client

    def producer(self, topic: str, **options: Any) -> Any:
        return self.shared_client.create_producer(topic, **options)

    def consumer(self, topic: Any, subscription: str = "sub", kind: str = "Exclusive", **options: Any) -> Any:
        """A consumer; `kind` is the name of a ConsumerType."""
        return self.shared_client.subscribe(
            topic, subscription, consumer_type=getattr(self.sdk.ConsumerType, kind), **options
        )

    def subscribed(self, texts: Iterable[str] = (), *, partitions: int = 0, **options: Any) -> Subscribed:
        """A topic with a consumer, opened with the options of `consumer`, and texts that were sent to it afterwards."""
        topic = self.topic(partitions=partitions)
        consumer = self.consumer(topic, **options)
        return Subscribed(topic, consumer, self.send(topic, texts))

    def reader(self, topic: str, start: Any, **options: Any) -> Any:
        return self.shared_client.create_reader(topic, start, **options)

    def send(self, topic: str, texts: Iterable[str], **options: Any) -> list[Any]:
        """Send texts one after the other with a producer of their own; gives the ids."""
        producer = self.producer(topic, **options)
        ids = [producer.send(text.encode()) for text in texts]
        producer.close()
        return ids

    def send_partition_by_partition(self, topic: str, texts: Mapping[int, Iterable[str]]) -> None:
        """Send texts to given partitions of a partitioned topic."""
        for partition, part in texts.items():
            self.send(f"{topic}-partition-{partition}", part)

    def receive(self, consumer: Any, count: int) -> list[Any]:
        """The next `count` messages of a consumer. Raises the side's Timeout when they do not come."""
        return [consumer.receive(PATIENCE_MS) for _ in range(count)]

    def receive_acked(self, consumer: Any, count: int) -> list[Any]:
        messages = []
        for _ in range(count):
            messages.append(consumer.receive(PATIENCE_MS))
            consumer.acknowledge(messages[-1])
        return messages

    def rest(self, consumer: Any, silence_ms: int | None = None) -> list[Any]:
        """The messages that come until nothing came for `silence_ms`; for None that of the target."""
        found: list[Any] = []
        while True:
            try:
                found.append(consumer.receive(silence_ms or self._target.silence_ms))
            except self.sdk.Timeout:
                return found

    def read(self, reader: Any, count: int) -> list[Any]:
        return [reader.read_next(PATIENCE_MS) for _ in range(count)]

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> None:
        """Wait for a condition. Raises TimeoutError naming `what`."""
        deadline = Deadline.after(timeout_s)
        if not wait_until(lambda: bool(condition()), deadline):
            raise TimeoutError(f"{what} did not happen within {timeout_s:.0f} s")

    def record(self, what: str, value: Any = True) -> None:
        """Put one fact into the history: plain values, ids, or lists, sets and dicts of them."""
        with self._lock:
            self._heard(Event(what, self._normaliser.value(value)))

    def attempt(self, what: str, call: Callable[[], T]) -> T | None:
        """Call, and record whether it worked or which official error it raised; None for an error."""
        try:
            done = call()
        except Exception as error:  # which error it is, is what is compared
            if not_supported(error) is not None:
                raise
            self.record(what, f"error {self.error_name(error)}")
            return None
        self.record(what, "works")
        return done

    def error_name(self, error: BaseException) -> str:
        """The name under which a program catches it; the result too where the official error carries one."""
        for kind in type(error).__mro__:
            if getattr(self.sdk, kind.__name__, None) is kind or kind.__module__ == "builtins":
                return kind.__name__
            result = getattr(error, "error", None)
            if kind.__name__ == "PulsarException" and callable(result):
                return f"PulsarException {str(result()).rpartition('.')[2]}"
            if issubclass(kind, AdminError):
                return kind.__name__
        return type(error).__name__

    def record_messages(self, what: str, messages: Iterable[Any], *fields: str) -> None:
        """Record messages in order: their texts, or dicts of the `fields` (names of Message's calls)."""
        self.record(what, [self.view(message, *fields) for message in messages])

    def record_set(self, what: str, messages: Iterable[Any], *fields: str) -> None:
        """The same, sorted: where no order is promised."""
        with self._lock:
            found = [self._normaliser.value(self.view(message, *fields)) for message in messages]
            self._heard(Event(what, sorted(found, key=repr)))

    def view(self, message: Any, *fields: str) -> Any:
        """A message's text, or its `fields` by name. `publish_timestamp` is "now" when it is of this run."""
        if not fields:
            return message.data().decode("utf-8", "backslashreplace")
        return {name: self._field(message, name) for name in fields}

    def is_now(self, time_ms: int) -> bool:
        return self._started_ms - _CLOCKS_DIFFER_MS <= time_ms <= _CLOCK.now_ms() + _CLOCKS_DIFFER_MS

    def is_after(self, time_ms: int) -> bool:
        """Whether the clock has passed a time."""
        return _CLOCK.now_ms() > time_ms

    def _field(self, message: Any, name: str) -> Any:
        found = getattr(message, name)()
        if name == "publish_timestamp":
            return "now" if self.is_now(found) else found
        return found

    def close(self) -> None:
        """Close the clients, and remove what was made if the target wants that. Failures of this are not results."""
        for client in self._clients:
            with suppress(Exception):
                client.close()
        if self._target.clean:
            for topic in self._topics:
                with suppress(Exception):
                    self._administration().delete_topic(topic, force=True)
        if isinstance(self._admin, LayerAdmin):
            self._admin.close()
        if self._directory is not None:
            self._directory.cleanup()


def not_supported(error: BaseException | None) -> str | None:
    """What our SDK does not have, when that is what an error is about: NotSupported, or a name that is missing."""
    while error is not None:
        if type(error).__name__ == "NotSupported" and type(error).__module__ == "pulsar_on_kafka.exceptions":
            return str(error)
        if isinstance(error, AttributeError) and _is_ours(error.obj):
            return f"{_name_of(error.obj)} has no {error.name}"
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("pulsar_on_kafka."):
            return f"there is no module {error.name}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def _is_ours(thing: object) -> bool:
    if isinstance(thing, ModuleType):
        return thing.__name__.partition(".")[0] == "pulsar_on_kafka"
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__module__.partition(".")[0] == "pulsar_on_kafka"


def _name_of(thing: object) -> str:
    return thing.__name__ if isinstance(thing, (ModuleType, type)) else type(thing).__name__
