"""The schemas that are no schemas: bytes as they are, and text as UTF-8."""

from __future__ import annotations

from typing import Any


class Schema:
    """How a value becomes a payload and back."""

    def encode(self, obj: Any) -> bytes:
        """The payload for `obj`. Raises TypeError for a value of a wrong type."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        """The value of a payload."""
        raise NotImplementedError


class BytesSchema(Schema):
    """Payloads are bytes."""

    def encode(self, obj: Any) -> bytes:
        if type(obj) is not bytes and not isinstance(obj, bytes):
            raise TypeError(f"BytesSchema takes bytes, got {type(obj).__name__}: {obj!r:.60}")
        return bytes(obj)

    def decode(self, data: bytes) -> bytes:
        return data

    def __str__(self) -> str:
        return "BytesSchema"


class StringSchema(Schema):
    """Payloads are text in UTF-8."""

    def encode(self, obj: Any) -> bytes:
        if not isinstance(obj, str):
            raise TypeError(f"StringSchema takes str, got {type(obj).__name__}: {obj!r:.60}")
        return obj.encode("utf-8")

    def decode(self, data: bytes) -> str:
        return data.decode("utf-8")

    def __str__(self) -> str:
        return "StringSchema"
