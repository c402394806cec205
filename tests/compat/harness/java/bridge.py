"""Calls into the JVM: its values, and its exceptions under the names of the official Python client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tests.compat.harness.java.runtime import JavaAddress

_NAMES: Final = {
    "BrokerMetadataException": "BrokerMetadataError",
    "BrokerPersistenceException": "BrokerPersistenceError",
    "ConnectException": "ConnectError",
    "CryptoException": "CryptoError",
    "GettingAuthenticationDataException": "ErrorGettingAuthenticationData",
    "IncompatibleSchemaException": "IncompatibleSchema",
    "InvalidServiceURL": "InvalidUrl",
    "LookupException": "LookupError",
    "MemoryBufferIsFullError": "MemoryBufferIsFull",
    "NotAllowedException": "NotAllowedError",
    "NotFoundException": "TopicNotFound",
    "NotSupportedException": "OperationNotSupported",
    "ProducerBlockedQuotaExceededError": "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException": "ProducerBlockedQuotaExceededException",
    "ProducerQueueIsFullError": "ProducerQueueIsFull",
    "TopicDoesNotExistException": "TopicNotFound",
    "AuthenticationException": "AuthenticationError",
    "AuthorizationException": "AuthorizationError",
    "ServiceNotReadyException": "ServiceUnitNotReady",
    "FeatureNotSupportedException": "UnsupportedVersionError",
    "CoordinatorNotFoundException": "TransactionCoordinatorNotFoundError",
    "InvalidTxnStatusException": "InvalidTxnStatusError",
    "TooManyRequestsException": "TooManyLookupRequestException",
    "TransactionConflictException": "TransactionConflict",
    "TransactionHasOperationFailedException": "InvalidTxnStatusError",
}
"""Classes whose name is not the Python client's with `Exception` after it."""

_PREFIXES: Final = (
    "org.apache.pulsar.client.api.PulsarClientException$",
    "org.apache.pulsar.client.api.transaction.TransactionCoordinatorClientException$",
)
_WRAPPERS: Final = ("java.util.concurrent.ExecutionException", "java.util.concurrent.CompletionException")
_ARGUMENTS: Final = ("java.lang.IllegalArgumentException", "java.lang.NullPointerException")


def official_name(java_class: str) -> str:
    """The official Python exception for a Java class; `ValueError` for what refuses an argument."""
    if java_class in _ARGUMENTS:
        return "ValueError"
    if not java_class.startswith(_PREFIXES):
        return "UnknownError"
    name = java_class.rpartition("$")[2]
    return _NAMES.get(name, name.removesuffix("Exception"))


def _first_known(thrown: Any) -> str:
    """Of an exception or what caused it: a blocking call wraps the coordinator's, for which it has no class."""
    while True:
        name = official_name(thrown.getClass().getName())
        cause = thrown.getCause()
        if name != "UnknownError" or cause is None:
            return name
        thrown = cause


class Bridge:
    """One connection to the JVM. Thread-safe: py4j opens a connection for each thread that calls."""

    def __init__(self, address: JavaAddress, errors: Any) -> None:
        """`errors` is the official module, whose exceptions are raised."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        parameters = GatewayParameters(port=address.port, auth_token=address.token, auto_convert=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._errors = errors
        self.jvm: Any = self._gateway.jvm
        self.api: Any = self.jvm.org.apache.pulsar.client.api
        self.ms: Any = self.jvm.java.util.concurrent.TimeUnit.MILLISECONDS

    def end_jvm(self) -> None:
        """For the last one that uses it: nothing is called any more, so no object of Java is given back later."""
        self._gateway.shutdown()

    def texts(self, *values: str) -> Any:
        """A `String...`."""
        made = self._gateway.new_array(self.jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    @contextmanager
    def official_errors(self) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            thrown = error.java_exception
            while thrown.getClass().getName() in _WRAPPERS and thrown.getCause() is not None:
                thrown = thrown.getCause()
            name = _first_known(thrown)
            kind = ValueError if name == "ValueError" else getattr(self._errors, name, self._errors.UnknownError)
            raise kind(f"{thrown.getClass().getName()}: {thrown.getMessage()}") from error

    def settled(self, future: Any) -> tuple[Any, Any]:
        """The outcome of a CompletableFuture: the official Result, and Java's value (None for a failure)."""
        try:
            value = self.call(future.get)
        except self._errors.PulsarException as failure:
            return getattr(self._errors.Result, type(failure).__name__, self._errors.Result.UnknownError), None
        return self._errors.Result.Ok, value

    def timeout(self) -> Exception:
        """The official Timeout: Java's receive gives null instead."""
        return self._errors.Timeout("nothing came")  # type: ignore[no-any-return]

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Raises the official exceptions."""
        with self.official_errors():
            return function(*arguments)


class Handle:
    """A producer, consumer or reader of Java's client, which is `native`."""

    def __init__(self, bridge: Bridge, native: Any) -> None:
        self._bridge = bridge
        self.native = native

    def topic(self) -> str:
        return str(self.native.getTopic())

    def is_connected(self) -> bool:
        return bool(self.native.isConnected())

    def close(self) -> None:
        self._bridge.call(self.native.close)


class Options:
    """Keyword arguments on their way to a Java builder: each is taken once, none may be left over."""

    def __init__(self, whose: str, given: Mapping[str, Any]) -> None:
        self._whose = whose
        self._given = dict(given)

    def take(self, name: str, default: Any = None) -> Any:
        return self._given.pop(name, default)

    def done(self) -> None:
        """Raises TypeError: an option that the driver does not know, so that none is silently without effect."""
        if self._given:
            raise TypeError(f"the Java driver's {self._whose} does not know {', '.join(sorted(self._given))}")
