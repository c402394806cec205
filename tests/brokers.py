"""Brokers of tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, TypeVar
from unittest import mock

from pulsar_on_kafka.embedded import EmbeddedBrokerError
from tests.steps import Missing

T = TypeVar("T")

_FOR_JAVA: Final = "JDK_JAVA_OPTIONS"
_FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""A broker of some minutes: what the JVM's second compiler would save, it costs here."""


@contextmanager
def available(missing: Missing, opening: AbstractContextManager[T]) -> Iterator[T]:
    """What `opening` gives, a broker or what stands on one. Where no broker can be had, the test is skipped, or fails
    under `--require kafka`."""
    with ExitStack() as stack:
        options = f"{os.environ.get(_FOR_JAVA, '')} {_FIRST_COMPILER}".strip()
        try:
            with mock.patch.dict(os.environ, {_FOR_JAVA: options}):
                made = stack.enter_context(opening)
        except EmbeddedBrokerError as error:
            missing("kafka", f"no broker: {error}")
        yield made
