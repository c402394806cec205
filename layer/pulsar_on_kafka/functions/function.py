"""The interface of a function. Source: `pulsar.functions.function`."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.functions.context import Context


class Function:
    """Subclasses turn one input message into one output value."""

    def process(self, input: Any, context: Context) -> Any:
        """Called for every message of the input topics, with its value; what it returns goes to the output topic."""
        raise NotImplementedError(f"{type(self).__name__}.process")
