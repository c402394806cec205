"""What users read in an error: the method, the nearest parameter, and one cause."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors


def test_an_unknown_argument_names_the_method_and_the_nearest_one() -> None:
    with pytest.raises(TypeError) as refused:
        pulsar.Client("kafka://127.0.0.1:1", operation_timeout=3)  # type: ignore[call-arg]
    said = (
        "__init__() got an unexpected keyword argument 'operation_timeout'. Did you mean 'operation_timeout_seconds'?"
    )
    assert str(refused.value) == said
    with pytest.raises(TypeError) as refused:
        pulsar.Client("kafka://127.0.0.1:1", qqqq=3)  # type: ignore[call-arg]
    assert str(refused.value) == "__init__() got an unexpected keyword argument 'qqqq'"


def test_an_error_has_one_cause() -> None:
    def failing() -> None:
        with pulsar_errors():
            try:
                raise OSError("the socket")
            except OSError as failure:
                raise errors.ConnectFailed("connecting: the socket") from failure

    with pytest.raises(pulsar.ConnectError, match="connecting: the socket") as raised:
        failing()
    cause = raised.value.__cause__
    assert isinstance(cause, errors.ConnectFailed)
    assert cause.__cause__ is None
    assert cause.__context__ is None
