"""Errors of Python code that a streaming query's thread in the JVM calls have a text that Spark can bear.

py4j passes the traceback of such a call to Spark as one text. When a query is stopped, Spark searches this text for
Java's interruptions, by a regular expression that recurs for each character behind `py4j.protocol.Py4JJavaError: An
error occurred while calling` (`StreamExecution.PROXY_ERROR`). Some kB of a Java stack trace overflow the thread's
stack: the thread dies, and `query.exception()` is None. And py4j sends no reply to a call that ends with `SystemExit`,
so that the query waits for ever.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from pulsar_on_kafka_spark.base.errors import SparkConnectorError

MAX_BYTES: Final = 64 * 1024
"""The limit of an error's text in UTF-8, besides its first line."""
_MAX_FIRST: Final = 4_000
_HEAD: Final = MAX_BYTES * 3 // 4
_JAVA_ERROR: Final = "py4j.protocol.Py4JJavaError"
_INTERRUPTIONS: Final = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
"""Source: StreamExecution.IO_EXCEPTION_NAMES."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class QueryFailed(SparkConnectorError):
    """A call of a streaming query failed. The text is the failure's first line and its traceback."""


def reported(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same call, whose failures are of a bounded text (`error_text`)."""

    @wraps(call)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except BaseException as failure:  # also SystemExit, for which py4j would send no reply
            raise QueryFailed(error_text(failure)) from None

    return run


def error_text(failure: BaseException) -> str:
    """The failure's first line, and its traceback: of a long one the beginning and the end."""
    whole = "".join(traceback.format_exception(failure)).rstrip()
    first = "".join(traceback.format_exception_only(failure)).partition("\n")[0][:_MAX_FIRST]
    text = f"{first}\n{_cut(whole)}".replace(_JAVA_ERROR, "Py4JJavaError")
    found = next((name for name in _INTERRUPTIONS if name in whole), None) if _JAVA_ERROR in whole else None
    if found is not None:  # at the end, where Spark's search for it is short
        text += f"\n{_JAVA_ERROR}: An error occurred while calling Java: {found}"
    return text


def _cut(text: str) -> str:
    data = text.encode(errors="replace")
    if len(data) <= MAX_BYTES:
        return text
    head, tail = data[:_HEAD].decode(errors="ignore"), data[_HEAD - MAX_BYTES :].decode(errors="ignore")
    return f"{head}\n[... {len(data) - MAX_BYTES:,} of {len(data):,} bytes are left out here ...]\n{tail}"
