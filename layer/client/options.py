"""Checks of arguments, with the official client's choice of built-in exceptions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from layer.exceptions import InvalidConfiguration, NotSupported


def check_type(kind: type[Any] | tuple[type[Any], ...], name: str, value: object) -> None:
    """Raises ValueError, as the official `_check_type`; a bool is no int."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, bool) and bool not in kinds:
        raise ValueError(f"Argument {name} is expected to be of type {_names(kinds)}, got bool: {value!r}")
    if not isinstance(value, kinds):
        raise ValueError(
            f"Argument {name} is expected to be of type {_names(kinds)}, got {type(value).__name__}: {value!r:.60}"
        )


def check_type_or_none(kind: type[Any] | tuple[type[Any], ...], name: str, value: object) -> None:
    if value is not None:
        check_type(kind, name, value)


def check_range(name: str, value: int, least: int, most: int | None = None) -> None:
    """Raises InvalidConfiguration naming the value and what was expected."""
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"{least} to {most}"
        raise InvalidConfiguration(f"{name} must be {bounds}, got {value}")


def not_yet(feature: str, *, when: bool) -> None:
    """Raises NotSupported naming `feature`, when it is asked for."""
    if when:
        raise NotSupported(f"{feature}: not in this version")


def milliseconds(name: str, value: timedelta | int) -> int:
    return int(value.total_seconds() * 1000) if isinstance(value, timedelta) else value


def _names(kinds: tuple[type[Any], ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)
