"""Brokers of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

from pulsar_on_kafka.embedded import EmbeddedBrokerError
from tests.steps import Missing

T = TypeVar("T")


@contextmanager
def available(missing: Missing, opening: AbstractContextManager[T]) -> Iterator[T]:
    """What `opening` gives, a broker or what stands on one. Where no broker can be had, the test is skipped, or fails
    under `--require kafka`."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(opening)
        except EmbeddedBrokerError as error:
            missing("kafka", f"no broker: {error}")
        yield made
