"""Brokers of tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar
from unittest import mock

from pulsar_on_kafka.embedded import EmbeddedBrokerError
from tests.steps import Missing

T = TypeVar("T")

_FOR_JAVA: Final = "JDK_JAVA_OPTIONS"
_OF_MINUTES: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A broker of some minutes: what the JVM's second compiler and its collector of many threads would save, they cost
here."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of the broker's own is made there
_ROOM_BYTES: Final = 4_000_000_000
"""Of memory that files may take. Brokers of a run of all tests have less than a quarter of it."""


@contextmanager
def available(missing: Missing, opening: AbstractContextManager[T]) -> Iterator[T]:
    """What `opening` gives, a broker or what stands on one. Where no broker can be had, the test is skipped, or fails
    under `--require kafka`."""
    with ExitStack() as stack:
        options = f"{os.environ.get(_FOR_JAVA, '')} {_OF_MINUTES}".strip()
        try:
            with mock.patch.dict(os.environ, {_FOR_JAVA: options}), _in_memory():
                made = stack.enter_context(opening)
        except EmbeddedBrokerError as error:
            missing("kafka", f"no broker: {error}")
        yield made


@contextmanager
def _in_memory() -> Iterator[None]:
    """Temporary directories are made in memory, where there is plenty: a broker waits for the disk several times for
    each partition that it makes."""
    there = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    with mock.patch.object(tempfile, "tempdir", str(_MEMORY) if there else tempfile.tempdir):
        yield
