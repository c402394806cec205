"""Serializers turn values into bytes and back. Source: `pulsar.functions.serde`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final

_TEXT_TYPES: Final[tuple[Callable[[str], Any], ...]] = (int, float, complex, str)


class SerDe:
    """Serialization and deserialization, in one object."""

    def serialize(self, input: Any) -> bytes:
        """The bytes of a value."""
        raise NotImplementedError(f"{type(self).__name__}.serialize")

    def deserialize(self, input_bytes: bytes) -> Any:
        """The value of some bytes."""
        raise NotImplementedError(f"{type(self).__name__}.deserialize")


class PickleSerDe(SerDe):
    """Pickle. Only for bytes that come from people one trusts: unpickling runs what they wrote."""

    def serialize(self, input: Any) -> bytes:
        """The pickle of any value."""
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """The value of a pickle."""
        return pickle.loads(input_bytes)  # noqa: S301 - that is what this class is for


class IdentitySerDe(SerDe):
    """Numbers and text as their text, bytes as they are."""

    def serialize(self, input: Any) -> bytes:
        """Raises TypeError for anything but int, float, complex, str and bytes."""
        if type(input) in _TEXT_TYPES:
            return str(input).encode("utf-8")
        if type(input) is bytes:
            return input
        raise TypeError(f"IdentitySerDe takes int, float, complex, str or bytes, got {type(input).__name__}")

    def deserialize(self, input_bytes: bytes) -> Any:
        """The first of int, float, complex, str that the text reads as; the bytes themselves if it is no text."""
        try:
            text = input_bytes.decode("utf-8")
        except UnicodeDecodeError:
            return input_bytes
        for read in _TEXT_TYPES:
            try:
                return read(text)
            except ValueError:
                continue
        return input_bytes
