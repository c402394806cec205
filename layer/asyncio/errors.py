"""The one exception of `asyncio`, and how the blocking classes' become it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.exceptions import Result


class PulsarException(Exception):
    """Every failure of the asyncio classes. Source: `pulsar.asyncio.PulsarException`, which is no relative of
    `pulsar.PulsarException` either."""

    def __init__(self, result: Result, msg: str | None = None) -> None:
        super().__init__(result, msg)
        self._result = result
        self._msg = msg

    def error(self) -> Result:
        return self._result

    def __str__(self) -> str:
        code = f"{self._result.value} {self._result.name}"
        return f"{code}: {self._msg}" if self._msg else code


def as_asyncio(error: exceptions.PulsarException) -> PulsarException:
    return PulsarException(error.result, str(error))


@contextmanager
def asyncio_errors() -> Iterator[None]:
    """Translate exceptions of the blocking classes to those of this module; `ValueError` and `TypeError` stay."""
    try:
        yield
    except exceptions.PulsarException as error:
        raise as_asyncio(error) from error
